"""The limits and the sources of a study, out of the Markdown that tells of it."""

from __future__ import annotations

import re

#: What a page shows of them, by the headings, or the words in bold type, under which they stand.
NOTES = {"limits": "limits?", "sources": "sources?"}

LINK = re.compile(r"\[([^]]+)\]\(([^)\s]+)\)")


def notes_in(markdown: str) -> dict[str, list[str]]:
    """The paragraphs on limits and on sources, as plain text; what is not there is left out."""
    paragraphs_by_name = {
        name: _section_paragraphs(markdown, words) or _bold_paragraphs(markdown, words) for name, words in NOTES.items()
    }
    return {name: list(map(plain_text, paragraphs)) for name, paragraphs in paragraphs_by_name.items() if paragraphs}


def plain_text(markdown: str) -> str:
    """A paragraph without marks: code and emphasis as the words alone, links with their address if it is on the web."""
    text = LINK.sub(lambda link: f"{link[1]} ({link[2]})" if link[2].startswith("http") else link[1], markdown)
    text = re.sub(r"`([^`]*)`|(?<!\w)[*_]{1,2}([^*_]+)[*_]{1,2}(?!\w)", lambda mark: mark[1] or mark[2] or "", text)
    return " ".join(text.split())


def _section_paragraphs(markdown: str, words: str) -> list[str]:
    """The paragraphs of the section of that name."""
    section = re.search(rf"^#+ (?:{words})\s*\n(.*?)(?=^#+ |\Z)", markdown, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    return [part for part in re.split(r"\n\s*\n", section[1].strip()) if part] if section else []


def _bold_paragraphs(markdown: str, words: str) -> list[str]:
    """The paragraphs that begin with that word in bold type, without it."""
    parts = (re.match(rf"\*\*(?:{words})\.?\*\*\.?\s*(.+)", part, re.DOTALL | re.IGNORECASE)
             for part in re.split(r"\n\s*\n", markdown))  # fmt: skip
    return [part[1] for part in parts if part]
