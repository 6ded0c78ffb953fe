"""Folders that are read and written."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "docs" / "benchmarks"
PAGES = ROOT / "docs" / "pages"
NAVIGATION = ROOT / "docs" / "mkdocs.yml"
PICTURES = PAGES / "pictures"
