"""`python -m holdfast.deploy.release`: a single step, or with `check` all of them.

Exit codes are those of `holdfast`: 0, 1 for a fault, 2 for usage, 4 if something was left out.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.deploy.release import signing, steps
from holdfast.sink.contract.exits import ExitCode

ALL = "check"


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    about = "\n".join(f"  {name}: {step.__doc__}" for name, step in steps.SINGLE.items())
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.deploy.release",
        description=f"Steps of a release; {ALL} runs all but verify and site.\n\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("step", choices=[ALL, *steps.SINGLE])
    parser.add_argument("--to", type=Path, default=steps.RELEASE, help="the folder of artifacts")
    parser.add_argument("--key", type=Path, help="sign with this SSH key: a release")
    parser.add_argument("--allowed", type=Path, default=signing.ALLOWED, help="allowed signers")
    parser.add_argument("--osv", type=Path, help="OSV's export of PyPI, a folder or zip")
    parser.add_argument("--containers", default="docker", help="the program of `make images`")
    return parser.parse_args(words)


def _replaceable(folder: Path) -> bool:
    """Whether a folder may be removed with all that is in it."""
    if folder == steps.RELEASE or not folder.exists() or (folder / signing.SUMS).exists():
        return True
    return folder.is_dir() and not any(folder.iterdir())


def main(words: Sequence[str] | None = None) -> int:
    """Run a step, or all; returns the exit code."""
    options = _arguments(words)
    chosen = {options.step: steps.SINGLE[options.step]} if options.step != ALL else steps.CHECK
    if options.step == ALL:
        if not _replaceable(options.to):
            sys.stderr.write(
                f"{options.to} holds files and no {signing.SUMS}, so it is no release of before."
                " Nothing was changed; name a new folder, or empty this one.\n"
            )
            return ExitCode.USAGE
        shutil.rmtree(options.to, ignore_errors=True)
        options.to.mkdir(parents=True)
    reports = []
    for name, step in chosen.items():
        began = time.monotonic()
        reports.append(report := steps.safely(step, options))
        sys.stdout.write(f"{name}: {report.result}, {time.monotonic() - began:.0f} s\n")
        for mark, texts in (
            ("FAULT", report.faults),
            ("left out", report.left_out),
            ("", report.notes),
        ):
            sys.stdout.writelines(f"  {mark}{': ' * bool(mark)}{text}\n" for text in texts)
        sys.stdout.flush()
    if any(each.faults for each in reports):
        return ExitCode.FAILED
    return ExitCode.DEGRADED if any(each.left_out for each in reports) else ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
