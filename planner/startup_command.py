"""The command that was pasted above a start's log, out of its prompts, quotes and fences, with the variables set before it.

It is found here and read by `planner.command_line`; nothing is run. What the log itself prints is none of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from planner.startup_facts import LogLine
from planner.startup_lines import clean

_MOST_LINES, _MOST_VARIABLES, _MOST_COMMANDS = 200, 60, 500
_LONGEST_LINE, _LONGEST_SHOWN = 20_000, 600
_OWN = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d|usage:|File \"")  # said, not typed
_FRAME = re.compile(r"^\s*(?:[>|│+]\s+)*(?:[\w.-]{1,40}\s+\|\s+)?(?:```\w*\s*)?")
# All repeats that may begin at many places of a line are bounded: a hostile line costs no more than its length.
_ASSIGNED = r"[A-Za-z_]\w{0,80}=(?:'[^']{0,999}'|\"[^\"]{0,999}\"|[^\s'\"`]{0,999}+)"
_MODEL = r"(?=\S*[/\d$._-])['\"]?[^\s'\"`-][^\s'\"`]*['\"]?(?=\s*$|\s+[-\\`^>|&;]|[`'\";&|])"  # "serve it" is prose
_START = re.compile(
    rf"(?:^|(?<=[\s`$#%>:;&|+\"']))(?:(?:{_ASSIGNED}|sudo|env|exec|nohup)[ \t]{{1,99}}){{0,40}}"
    rf"(?:(?:\S{{0,300}}/)?vllm(?:\.exe)?[ \t]{{1,99}}serve(?:[ \t]{{1,99}}(?:-|{_MODEL})|[ \t]{{0,99}}[\\`^][ \t]*$)"
    r"|(?:\S{0,300}python[\d.]{0,9}(?:\.exe)?[ \t]{1,99})?-m[ \t]{1,99}vllm\.entrypoints\.(?:openai\.)?api_server\b"
    r"|(?:docker|podman|nerdctl)[ \t]+run\b)"
)
_SETTING = re.compile(
    r"^(?:[^=]{0,80}[$#%>]\s+)?(?:(?:export|set|ENV)\s+)?(?P<pairs>VLLM_\w{1,80}=(?:[^\s'\"`]{0,999}|'[^']{0,999}'|\"[^\"]{0,999}\"))\s*+(?:[;\\]\s*)?$"
)
_POWERSHELL = re.compile(r"\$env:(VLLM_\w{1,80})\s*+=\s*+['\"]?([^\s'\"]{0,300})['\"]?\s*+(?:;\s*)?$", re.IGNORECASE)
_GOES_ON = re.compile(r"(?<![ \t])[ \t]*[\\`^][ \t]*$")
_OPTION = re.compile(r"--?[A-Za-z]")
_REDIRECTION = re.compile(r"\s(?:[12&]?>{1,2}\s*&?[^\s&|;]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenCommand:
    """A command above a start as one shell text, with the variables that were set before it."""

    line: LogLine  # where it begins
    text: str


@dataclass(slots=True)
class CommandWatch:
    """Notes the commands in lines that pass through it."""

    commands: list[GivenCommand] = field(default_factory=list)
    _settings: list[GivenCommand] = field(default_factory=list)
    _open: list[str] = field(default_factory=list)  # the lines so far of a command that may go on
    _first_number: int = 0
    _is_unfinished: bool = False  # whether the last of them says that it goes on

    def watch(self, lines: Iterable[str]) -> Iterator[str]:
        """The lines, as they are."""
        for number, line in enumerate(lines, start=1):
            if self._open or "vllm" in line or "VLLM_" in line or " run " in line:
                self._take(number, line)
            yield line
        self._close()

    def above(self, number: int) -> GivenCommand | None:
        """The last command that begins above the line `number`; without one, what was set there."""
        found = [command for command in self.commands if command.line.number < number]
        if found:
            return found[-1]
        settings = [setting for setting in self._settings if setting.line.number < number]
        text = "\n".join(setting.text for setting in settings)
        return GivenCommand(line=settings[0].line, text=text) if settings else None

    def _take(self, number: int, line: str) -> None:
        text = _FRAME.sub("", clean(line[:_LONGEST_LINE]).rstrip("\r\n"), count=1)
        is_own = _OWN.search(text) is not None
        if self._open:
            goes_on = (self._is_unfinished and bool(text.strip())) or _OPTION.match(text.lstrip()) is not None
            if goes_on and not is_own and len(self._open) < _MOST_LINES:
                self._append(text)
                return
            self._close()
        if is_own or len(self.commands) >= _MOST_COMMANDS:
            return
        if (found := _START.search(text)) is not None:
            self._first_number = number
            self._append(_within_quotes(text, found.start()))
        elif (setting := _setting(text)) is not None and len(self._settings) < _MOST_VARIABLES:
            shown = LogLine(number=number, text=text.strip()[:_LONGEST_SHOWN])
            self._settings.append(GivenCommand(line=shown, text=setting))

    def _append(self, text: str) -> None:
        self._is_unfinished = _GOES_ON.search(text) is not None
        self._open.append(_GOES_ON.sub("", text))

    def _close(self) -> None:
        command = _REDIRECTION.sub("", " ".join(self._open).strip())
        if "vllm" in command.lower():
            shown = LogLine(number=self._first_number, text=command[:_LONGEST_SHOWN])
            text = "\n".join([*(setting.text for setting in self._settings), command])
            self.commands.append(GivenCommand(line=shown, text=text))
        self._open, self._is_unfinished = [], False


def _setting(text: str) -> str | None:
    """The line that sets one of vLLM's variables, as a shell's; None where it sets none."""
    if (found := _SETTING.match(text.strip())) is not None:
        return "export " + found["pairs"]
    found = _POWERSHELL.search(text)
    return None if found is None else "export " + "=".join(found.groups())


def _within_quotes(text: str, begin: int) -> str:
    """The command that begins there, up to the quote or tick that stands before it; to the line's end without one."""
    before = text[begin - 1 : begin]
    end = text.find(before, begin) if before in ("`", '"', "'") and before else -1
    return text[begin:end] if end > 0 else text[begin:]
