"""Text of others inside Markdown: it is shown as it is, whatever it says."""

from html.parser import HTMLParser

import markdown
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stallpoint.text import plain


class Shown(HTMLParser):
    """Tags and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(st.sampled_from("ab _*`<>|[]()!\\/\n#&;"), max_size=30))
@example("a | b\n| c")
@example("<img src=x onerror=alert(1)>")
@example("[click](javascript:alert(1))")
@example("_x_ and layer_scaling &lt;")
def test_text_stays_in_its_cell_and_is_shown_as_it_is(text: str) -> None:
    page = f"| text | more |\n| --- | --- |\n| x{plain(text)}x | end |\n"
    shown = Shown(markdown.markdown(page, extensions=["tables"]))
    assert shown.tags == ["table", "thead", "tr", "th", "th", "tbody", "tr", "td", "td"]
    assert "".join(shown.text.split()) == "textmore" + "".join(f"x{text}xend".split())


@pytest.mark.parametrize("text", ["layer_scaling of k80-4gpu: 4.2 [3.9, 4.6], predicted", "n = 8; b ≥ 64, 5 %"])
def test_what_means_nothing_stays(text: str) -> None:
    assert plain(text) == text
