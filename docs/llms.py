"""The page llms.txt (https://llmstxt.org) beside the site: a heading for each part of the navigation, a line a page."""

from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure import StructureItem
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page


def on_nav(nav: Navigation, config: MkDocsConfig, **_: object) -> None:
    """Keep the navigation until all pages, and so their titles, are read."""
    config.extra["llms"] = nav


def on_post_build(config: MkDocsConfig, **_: object) -> None:
    """Write the file."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", "", *_lines(config.extra["llms"].items)]
    Path(config.site_dir, "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _lines(items: list[StructureItem], depth: int = 2) -> Iterator[str]:
    for item in items:
        if isinstance(item, Section):
            yield from ("", f"{'#' * depth} {item.title}", "")
            yield from _lines(item.children, depth + 1)
        elif isinstance(item, Page):
            yield f"- [{item.title}]({item.url})"
