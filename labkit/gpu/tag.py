"""The tag that ties an output to its input: eight hex digits at the end of the text.

An output is `<text> #<tag>`, where the tag is the CRC-32 of the prompt's UTF-8 bytes as eight
lowercase hex digits. It makes a swapped, doubled or stale answer visible without knowing what the
model should have written. Standard library only, so that workers without torch use it too.
"""

from zlib import crc32

MARK = " #"
DIGITS = 8


def tag(prompt: str) -> str:
    """Eight hex digits that depend on the whole prompt, lone surrogates included."""
    return f"{crc32(prompt.encode('utf-8', 'surrogatepass')):0{DIGITS}x}"


def stamp(text: str, prompt: str) -> str:
    """The output for `prompt`: its text, then its tag."""
    return f"{text}{MARK}{tag(prompt)}"


def carries(output: str, prompt: str) -> bool:
    """Whether this output was made for this prompt."""
    return output.endswith(MARK + tag(prompt))


def text_of(output: str) -> str:
    """The output without its tag."""
    return output[: -len(MARK) - DIGITS]
