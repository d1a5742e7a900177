// Judges requests with verify.mjs: a line of base64 fields each, as tests/contract/test_snippets.py says.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { verify } = await import(pathToFileURL(process.argv[2]));
const text = (field) => Buffer.from(field, "base64").toString();
for (const line of readFileSync(0, "latin1").trim().split("\n")) {
  const [now, secrets, headers, body] = line.split("\t");
  const pairs = text(headers).split("\n").flatMap((pair) => pair.split(/: (.*)/s).slice(0, 2));
  try {
    const raw = Buffer.from(body ?? "", "base64");
    console.log(`genuine ${verify(pairs, raw, text(secrets).split("\n"), Number(text(now)))}`);
  } catch (error) {
    console.log(error.status ? error.message : `${error}`);
  }
}
