"""The Chinese catalogue as an engineer reads it: one term for one thing (docs/translating.md), and Chinese punctuation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from babel.messages.catalog import Message
from babel.messages.pofile import read_po
from messages import TRANSLATIONS

from pages.parts.language import speaking
from pages.parts.said import said
from planner.versions import Era

ROOT = Path(__file__).parents[2]
CHINESE = next(path for path in TRANSLATIONS if "zh_CN" in path.parts)
# An English pattern, and the term that a translation of it holds; both columns stand in docs/translating.md.
TERMS = {
    r"preempt": "抢占",
    r"prefix cache?(ing)?\b": "前缀缓存",
    r"kv cache": "KV 缓存",
    r"\bpool\b": "缓存池",
    r"activation": "激活",
    r"concurrency": "并发",
    r"quanti[sz]": "量化",
    r"checkpoint": "检查点",
    r"tensor.parallel": "张量并行",
    r"pipeline parallel": "流水线并行",
    r"offload": "卸载",
    r"\bevict": "逐出",
    r"\bweights\b": "权重",
    r"chunked prefill": "分块预填充",
    r"sliding.window": "滑动窗口",
    r"cuda graph": "CUDA 图",
    r"calibrat": "校准",
    r"\brecording": "录制",
    r"\bscheduler": "调度器",
    r"host memory": "主机内存",
    r"block tables?\b": "块表",
    r"speculative decoding": "投机解码",
    r"\bprompts?\b": "提示词",
    r"recompute|recomputing|recomputation": "重新计算",
    r"\bworkload": "负载",
    r"swap space": "交换空间",
    r"throughput": "吞吐",
    r"profile run": "探测运行",
    r"non-torch": "非 torch",
}
# Names of files, flags, vLLM's own lines and code are no prose.
_CODE = re.compile(
    r"\{\w+\}|`[^`]*`|“[^”]*”|--[\w.-]+(?: [\w.]+\.\w+)?|\b\w+_\w+(?: \w+)?\b|\b\w+\.json\b|https?://\S+"
)
_HAN = "\u4e00-\u9fff"
_FAULTS = {
    "a half-width sign beside Chinese": re.compile(rf"[{_HAN}][,;?!]|[,;?!] ?[{_HAN}]|[{_HAN}][:(](?!\w)"),
    "a gap within Chinese": re.compile(rf"[{_HAN}，。；：、）”] +[{_HAN}]"),
    "no gap between Chinese and Latin": re.compile(rf"[{_HAN}][A-Za-z0-9]|[A-Za-z0-9%][{_HAN}]"),
    "a gap before a full-width sign": re.compile(r"\S [，。；：、）]"),
    "tokens in place of 个 token": re.compile(r"\} tokens(?=[。，；：]|$)"),
}


def translated() -> list[Message]:
    with CHINESE.open("rb") as file:
        return [message for message in read_po(file) if message.id and message.string]


MESSAGES = translated()


@pytest.mark.parametrize("english", TERMS)
def test_a_term_is_always_translated_alike(english: str) -> None:
    pattern = re.compile(english, re.IGNORECASE)
    meant = [message for message in MESSAGES if pattern.search(_CODE.sub(" ", str(message.id)))]

    assert meant, "no text of the pages holds this term any more"
    assert [(m.id, m.string) for m in meant if TERMS[english] not in str(m.string) and str(m.id) not in _KEPT] == []


# Where the English word stands for a value of vLLM's, or the term is in what fills the hole.
_KEPT = {"quantization {name} is no method of vLLM; it takes {known}.", ", doubled by performance_mode throughput"}


@pytest.mark.parametrize("fault", _FAULTS)
def test_chinese_is_set_as_chinese_is(fault: str) -> None:
    assert [m.string for m in MESSAGES if _FAULTS[fault].search(_CODE.sub("{}", str(m.string)))] == []


@pytest.mark.parametrize("chinese", sorted(set(TERMS.values())))
def test_the_glossary_holds_the_term(chinese: str) -> None:
    assert chinese in (ROOT / "docs" / "translating.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("era", Era)
def test_every_era_has_a_chinese_name(era: Era) -> None:
    with speaking("zh"):
        assert not re.search(r"[a-z]{2}", said(era.label))
