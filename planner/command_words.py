"""From pasted text to the words that vLLM would get: shells, containers and manifests. Nothing is run or expanded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from planner.yaml_subset import Node, looks_like_yaml, read_yaml

_LONGEST_TEXT = 200_000
_MOST_WORDS = 5_000
_DEEPEST = 4  # sh -c "bash -c '...'"
_SERVER_MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_SHELLS = frozenset({"sh", "bash", "zsh", "/bin/sh", "/bin/bash"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
# Options of `docker run` that take the next word as their value.
_CONTAINER_VALUES = frozenset(
    [
        "-e", "--env", "-v", "--volume", "-p", "--publish", "--name", "--gpus",
        "--runtime", "--shm-size", "--ipc", "--network", "--net", "--entrypoint", "--restart", "--ulimit",
        "-w", "--workdir", "--device", "--group-add", "--cap-add", "--cap-drop", "--security-opt", "--mount",
        "--env-file", "-u", "--user", "-h", "--hostname", "-m", "--memory", "--cpus",
        "--cpuset-cpus", "--platform", "-l", "--label", "--pid", "--log-driver", "--log-opt", "--add-host",
        "--tmpfs", "--health-cmd", "--pull", "--uts", "--userns", "--annotation",
    ]
)  # fmt: skip


@dataclass(slots=True)
class Words:
    """What the text says: the server's arguments, environment variables, the image and the number of cards passed in."""

    arguments: list[str] = field(default_factory=list)
    config_file: dict[str, Node] = field(default_factory=dict)  # an args file: flag name -> value
    environment: dict[str, str] = field(default_factory=dict)
    image: str | None = None
    num_cards: int | None = None
    is_found: bool = False  # a way to start vLLM was recognised


def read_words(text: str) -> Words:
    """The words for vLLM in `text`, whatever wraps them."""
    words = Words()
    text = text[:_LONGEST_TEXT]
    if looks_like_yaml(text):
        _read_manifest(read_yaml(text), words)
    else:
        _read_shell(text, words, 0)
    return words


# -- shell ------------------------------------------------------------------------------------------------------------


def split_shell(text: str) -> list[list[str]]:
    r"""The commands in `text`, each as words: quotes, comments, && ; | and line ends; \, ` and ^ at a line's end go on."""
    text = re.sub(r"[ \t]*[\\`^][ \t]*\r?\n[ \t]*", " ", text)
    commands: list[list[str]] = [[]]
    for word in _shell_words(text):
        if word is None:
            commands.append([])
        elif len(commands[-1]) < _MOST_WORDS:
            commands[-1].append(word)
    return [command for command in commands if command]


_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+)|(?P<end>\n|&&|\|\||[;|&])|(?P<comment>\#[^\n]*)|(?P<single>'[^']*'?)|"""
    r"""(?P<double>"(?:[^"\\]|\\.)*"?)|(?P<escape>\\.)|(?P<plain>[^\s'"\\;|&]+)|(?P<odd>.)""",
    re.DOTALL,
)


def _shell_words(text: str) -> Iterator[str | None]:
    """Words, and None where a command ends."""
    word: str | None = None
    for match in _TOKEN.finditer(text):
        kind, part = match.lastgroup, match[0]
        if kind == "comment" and word is not None:
            kind = "plain"  # a # inside a word is no comment
            part = part.split(maxsplit=1)[0]
        if kind in ("space", "comment", "end"):
            if word is not None:
                yield word
            word = None
            if kind == "end":
                yield None
            continue
        word = (word or "") + _unquoted(str(kind), part)
    if word is not None:
        yield word


def _unquoted(kind: str, part: str) -> str:
    if kind == "single":
        return part[1:].removesuffix("'")
    if kind == "double":
        return re.sub(r'\\(["\\$`])', r"\1", part[1:].removesuffix('"') if len(part) > 1 else "")
    return part[1:] if kind == "escape" else part


def _read_shell(text: str, words: Words, depth: int) -> None:
    fallback: list[str] = []
    for command in split_shell(text):
        rest = _take_environment(command, words)
        if not words.is_found:
            _read_command(rest, words, depth)
        if not words.is_found and not fallback and any(word.startswith("--") for word in rest):
            fallback = rest
    if not words.is_found:
        words.arguments = fallback


def _take_environment(command: list[str], words: Words) -> list[str]:
    """`command` without the prompt and the assignments before it, which go to `words`."""
    rest = list(command)
    while rest and (rest[0] in ("$", "%", ">", "#", "export", "env", "sudo", "set") or _ASSIGNMENT.match(rest[0])):
        if _ASSIGNMENT.match(rest[0]):
            name, value = rest[0].split("=", 1)
            words.environment[name] = value
        rest.pop(0)
    return rest


def _read_command(command: list[str], words: Words, depth: int) -> None:
    for index, word in enumerate(command):
        name = word.rsplit("/", 1)[-1]
        after = command[index + 1 :]
        if name in _CONTAINERS and "run" in after[:3]:
            _read_container(after[after.index("run") + 1 :], words, depth)
        elif name in ("vllm", "vllm.exe", "vllm.entrypoints.cli.main") and after[:1] == ["serve"]:
            words.arguments, words.is_found = after[1:], True
        elif word in _SERVER_MODULES or word.endswith("openai/api_server.py"):
            words.arguments, words.is_found = after, True
        elif word in _SHELLS and depth < _DEEPEST and len(after) > 1 and re.fullmatch(r"-[a-z]*c", after[0]):
            _read_shell(after[1], words, depth + 1)
        else:
            continue
        return


def _read_container(options: list[str], words: Words, depth: int) -> None:
    """`docker run` options up to the image, then what the image's own entry point gets."""
    index = 0
    while index < len(options) and options[index].startswith("-"):
        option, joined, value = options[index].partition("=")
        index += 1
        if not joined and option in _CONTAINER_VALUES:
            value = options[index] if index < len(options) else ""
            index += 1
        if option in ("-e", "--env") and "=" in value:
            name, _, content = value.partition("=")
            words.environment[name] = content
        if option == "--gpus":
            words.num_cards = _cards(value)
    if index < len(options):
        words.image = options[index]
        _read_entry(options[index + 1 :], words, depth)


def _read_entry(arguments: list[str], words: Words, depth: int) -> None:
    """What a vLLM image is given: a whole command, or the server's arguments alone."""
    if len(arguments) > 1 and depth < _DEEPEST and re.fullmatch(r"-[a-z]*c", arguments[0]):
        _read_shell(arguments[1], words, depth + 1)  # --entrypoint bash
    else:
        _read_command(arguments, words, depth)
    if not words.is_found:
        words.arguments = arguments[1:] if arguments[:1] == ["serve"] else arguments
        words.is_found = True


def _cards(value: str) -> int | None:
    match = re.search(r"device=([\d,]+)", value)
    if match is not None:
        return len([card for card in match[1].split(",") if card])
    return int(value) if re.fullmatch(r"\d{1,4}", value) else None


# -- manifests --------------------------------------------------------------------------------------------------------


def _read_manifest(node: Node, words: Words) -> None:
    """A container in a Kubernetes or Compose manifest, or an args file of vLLM (`--config`)."""
    container = _find_container(node, 0)
    if container is None:
        if isinstance(node, dict):
            words.config_file, words.is_found = node, True
        return
    words.image = str(container["image"]) if container.get("image") else None
    _read_manifest_environment(container.get("env", container.get("environment")), words)
    command = [
        *_as_words(container.get("entrypoint")),
        *_as_words(container.get("command")),
        *_as_words(container.get("args")),
    ]
    _read_entry(_take_environment(command, words), words, 0)


def _find_container(node: Node, depth: int) -> dict[str, Node] | None:
    """The first map with `args` or `command` as words, preferring one whose image is vLLM's."""
    found = list(_containers(node, depth))
    is_vllm = [container for container in found if "vllm" in str(container.get("image", "")).lower()]
    return next(iter(is_vllm or found), None)


def _containers(node: Node, depth: int) -> Iterator[dict[str, Node]]:
    if depth > 20:
        return
    if isinstance(node, dict):
        if isinstance(node.get("args"), list | str) or isinstance(node.get("command"), list | str):
            yield node
        for value in node.values():
            yield from _containers(value, depth + 1)
    elif isinstance(node, list):
        for value in node:
            yield from _containers(value, depth + 1)


def _as_words(node: Node) -> list[str]:
    if isinstance(node, str):
        return [word for command in split_shell(node) for word in command]
    if isinstance(node, list):
        return [_as_text(item) for item in node]
    return []


def _as_text(node: Node) -> str:
    if isinstance(node, bool):
        return "true" if node else "false"
    return "" if node is None else str(node)


def _read_manifest_environment(node: Node, words: Words) -> None:
    if isinstance(node, dict):
        words.environment.update({name: _as_text(value) for name, value in node.items()})
    for item in node if isinstance(node, list) else []:
        if isinstance(item, dict) and isinstance(item.get("name"), str):
            words.environment[str(item["name"])] = _as_text(item.get("value"))
        elif isinstance(item, str) and "=" in item:
            name, _, value = item.partition("=")
            words.environment[name] = value
