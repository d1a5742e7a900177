"""Every SQL statement of the product, by its package and name."""

from pathlib import Path

from holdfast.sink.contract.statements import sections, statement

ROOT = Path(__file__).parents[2]
PARTS = ("sink", "dispatcher", "migrations", "spark_app", "deploy")


def statements_of(package: str) -> dict[str, bytes]:
    """Return the statements of a package, such as `holdfast.migrations`, by name."""
    folder = ROOT.joinpath(*package.split(".")[1:])
    named = dict(sections(package, "statements.sql"))
    for path in sorted(folder.glob("sql/*.sql")):
        named |= {f"{path.stem}/{n}": t for n, t in sections(package, f"sql/{path.name}").items()}
    for path in sorted(folder.glob("sql/*/*.sql")):
        name = f"{path.parent.name}/{path.stem}"
        named[name] = statement(package, name)
    return named


def packages() -> list[str]:
    """Return every package that has statements."""
    files = [path for part in PARTS for path in (ROOT / part).rglob("*.sql")]
    folders = {path.parent for path in files if path.name == "statements.sql"}
    folders |= {path.parents[1] for path in files if path.parent.name == "sql"}
    return sorted(".".join(("holdfast", *each.relative_to(ROOT).parts)) for each in folders)
