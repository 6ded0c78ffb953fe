"""Results of `sb-dqn benchmark` as data, pages and pictures of the documentation.

`docs/benchmarks/SUITE.csv` has a row for each run, `SUITE-curves.csv` its evaluations during training. From them a page is
written for each suite, a section into the page of each algorithm and into the README, and their pictures.
`docs/benchmarks/bsuite.csv` is written by `bsuite_scores.py`; `bsuite-published.csv` has the scores that bsuite's authors published,
`published.csv` those of other libraries on the tasks of a suite.

Usage: python scripts/benchmarks/publish.py                           # writes pages and pictures
       python scripts/benchmarks/publish.py runs/benchmark_classic    # adds the runs of a benchmark to the data before
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

import yaml

from sb_dqn.cli.benchmark.command import QUEUE
from sb_dqn.cli.benchmark.runs import CURVES, FIRST_SEED, OWN, RESULTS, as_csv, read_suite, suite_names
from sb_dqn.files import write_text
from scripts.benchmarks.publishing import paths
from scripts.benchmarks.publishing.bsuite import bsuite_page, by_kind
from scripts.benchmarks.publishing.cells import KEY, SEEDS, cells_of, read
from scripts.benchmarks.publishing.pages import beside_peers, compares_settings, section, settings_page, suite_page
from scripts.benchmarks.publishing.pictures import algorithm_picture, picture, profile_picture, radar, settings_charts

BEGIN, END = "<!-- written by scripts/benchmarks/publish.py -->", "<!-- end -->"


def merge(out: Path) -> None:
    """Adds the runs of a benchmark to the data of its suite; a run of the same agent, task and seed is replaced."""
    suite = yaml.safe_load((out / QUEUE).read_text(encoding="utf-8"))["suite"]
    for name, target in ((RESULTS, paths.DATA / f"{suite}.csv"), (CURVES, paths.DATA / f"{suite}-curves.csv")):
        rows = {tuple(row[key] for key in KEY): row for path in (target, out / name) for row in read(path)}
        if tuned := [row["seed"] for row in rows.values() if int(row["seed"]) < FIRST_SEED]:
            raise SystemExit(
                f"seeds must be {FIRST_SEED} or more, got {tuned[0]} in {out / name}: presets are tuned on those below"
            )
        order = [task.name for task in read_suite(suite).tasks]
        ranked = sorted(rows.values(), key=lambda row: (order.index(row["env"]), *(row[key] for key in KEY)))
        names = dict.fromkeys(name for row in ranked for name in row)
        write_text(target, as_csv([{name: row.get(name, "") for name in names} for row in ranked]))


def outputs() -> dict[Path, str]:
    """Returns the text of each page and picture."""
    files: dict[Path, str] = {}
    sections: dict[str, list[str]] = defaultdict(list)
    glances = [
        f"Mean return ± standard deviation of the last model over {SEEDS} seeds, or the number in parentheses. Ours has its presets, "
        "the peer the settings of its Zoo, or ours where it has none."
    ]
    for suite in map(read_suite, suite_names()):
        cells = cells_of(suite)
        if not cells:
            continue
        if compares_settings(suite):
            files[paths.PAGES / "results" / f"{suite.name}.md"] = settings_page(suite, cells)
            files[paths.PICTURES / f"results-{suite.name}.svg"] = picture(settings_charts(cells))
            continue
        profile = profile_picture(suite, cells)
        files |= {paths.PICTURES / f"results-{suite.name}.svg": profile} if profile else {}
        files[paths.PAGES / "results" / f"{suite.name}.md"] = suite_page(suite, cells, bool(profile))
        glances += beside_peers(suite, cells)
        for algorithm in dict.fromkeys(cell.algorithm for cell in cells if cell.library == OWN):
            chosen = [cell for cell in cells if cell.algorithm.removeprefix("Recurrent") == algorithm]
            name = f"results-{suite.name}-{algorithm.lower()}.svg"
            files[paths.PICTURES / name] = algorithm_picture(suite, chosen)
            sections[algorithm].append(section(suite, algorithm, chosen, name))
    if scores := read(paths.DATA / "bsuite.csv"):
        files[paths.PAGES / "results" / "bsuite.md"] = bsuite_page(scores, read(paths.DATA / "bsuite-published.csv"))
        files[paths.PICTURES / "results-bsuite.svg"] = radar(by_kind(scores))
    files[paths.NAVIGATION] = with_pages(
        paths.NAVIGATION.read_text(encoding="utf-8"), [path for path in files if path.suffix == ".md"]
    )
    for page, heading in algorithm_pages().items():
        files[page] = with_section(page.read_text(encoding="utf-8"), "\n\n".join(sections.get(heading, [])))
    readme = paths.ROOT / "README.md"
    files[readme] = with_section(readme.read_text(encoding="utf-8"), "\n\n".join(glances))
    return files


def with_pages(navigation: str, pages: Iterable[Path]) -> str:
    """Returns the configuration of mkdocs with these pages of results, before the other measurements."""
    before = re.sub(r"^ +- results/.*\n", "", navigation, flags=re.MULTILINE)
    lines = "".join(f"          - results/{page.name}\n" for page in pages)
    return re.sub(r"^ +- measurements/index\.md\n", rf"\g<0>{lines}", before, flags=re.MULTILINE)


def algorithm_pages() -> dict[Path, str]:
    """Returns the page of each algorithm with the class that its heading names."""
    pages = sorted((paths.PAGES / "algorithms").glob("*.md"))
    return {
        page: page.read_text(encoding="utf-8").split()[1]
        for page in pages
        if "\n## Results\n" in page.read_text(encoding="utf-8")
    }


def with_section(page: str, text: str) -> str:
    """Returns a page with the written section at the start of its results, or without one."""
    page = re.sub(rf"{re.escape(BEGIN)}\n.*?{re.escape(END)}\n\n", "", page, flags=re.DOTALL)
    return page.replace("\n## Results\n\n", f"\n## Results\n\n{BEGIN}\n\n{text}\n\n{END}\n\n", 1) if text else page


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "folders", nargs="*", type=Path, help="folders of sb-dqn benchmark, whose runs are added to the data"
    )
    for folder in parser.parse_args(arguments).folders:
        merge(folder)
    for path, text in outputs().items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
            print(path.relative_to(paths.ROOT))


if __name__ == "__main__":
    main()
