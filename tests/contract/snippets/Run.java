import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Judges requests with Verify.java: a line of base64 fields each, as test_snippets.py says. */
public final class Run {
    private static byte[] bytes(String field) {
        return Base64.getDecoder().decode(field);
    }

    private static String text(String field) {
        return new String(bytes(field), StandardCharsets.UTF_8);
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\t", -1);
            Map<String, List<String>> headers = new HashMap<>();
            for (String pair : text(fields[2]).split("\n", -1)) {
                String[] parts = pair.split(": ", 2);
                headers.computeIfAbsent(parts[0], each -> new ArrayList<>()).add(parts[1]);
            }
            Instant now = Instant.ofEpochSecond(Long.parseLong(text(fields[0])));
            List<String> secrets = List.of(text(fields[1]).split("\n"));
            try {
                System.out.println("genuine " + Verify.verify(headers, bytes(fields[3]), secrets, now));
            } catch (Verify.Refused refused) {
                System.out.println(refused.getMessage());
            }
        }
    }
}
