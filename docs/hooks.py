"""What MkDocs does beyond its settings: config/README.md, which lies beside the studies, is a page of the site too."""

import posixpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

OUTSIDE = {"../config/README.md": "configuration.md"}
"""Files outside docs/, seen from there, and the pages they become."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add them."""
    for outside, page in OUTSIDE.items():
        source = posixpath.normpath(posixpath.join(config.docs_dir, outside))
        files.append(File.generated(config, page, abs_src_path=source))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let links to them, which also work where the repository is looked at, lead to their pages."""
    folder = posixpath.dirname(page.file.src_uri)
    for outside, target in OUTSIDE.items():
        there, here = posixpath.relpath(outside, folder or "."), posixpath.relpath(target, folder or ".")
        markdown = markdown.replace(f"]({there}", f"]({here}")
    return markdown
