"""Loss, gradient norm and step lines of common trainers, and Megatron's rerun state machine (who is to blame for a NaN).

Source: log forms of Megatron-LM / Megatron-Core, NeMo 1 and 2, DeepSpeed, HF Trainer, torchtitan, Lightning, nanoGPT and JSON
lines.
A field that is absent is a value too: Megatron leaves the loss out when it is NaN on the last stage, so `loss` may be missing
on a step line.
"""

import re
from typing import Any, Final

from outrider.parsers.prefixes import RANK_TAG, plain, stamp
from outrider.parsers.train_log_rule import TEXT_CHARS_MAX, Gates, Record, gate, rule

_NUM: Final = r"(?P<v>[-+]?(?:nan(?![a-z])|inf(?:inity)?(?![a-z])|\d{1,18}(?:\.\d{0,18})?(?:e[-+]?\d{1,4})?))"
_SEP: Final = r"['\"]?\s{0,3}(?:[:=]\s{0,12}|\s)['\"\[(]?"
_I: Final = re.IGNORECASE

# What may follow a keyword, in lower case; the keyword itself is found by a plain search, which is much faster.
_AFTER_STEP: Final = re.compile(
    r"s?['\"]?\s{0,3}[:=#]?\s{0,12}['\"]?(?P<v>\d{1,12})(?![\d.]*[a-z])(?:\s{0,8}(?:/|of)\s{0,12}(?P<total>\d{1,12}))?"
)
_AFTER_LOSS: Final = re.compile(r"(?:_step|/total|/global_avg_loss| value)?" + _SEP + _NUM)
_AFTER: Final = re.compile(_SEP + _NUM)
_AFTER_TIME: Final = re.compile(
    r"(?: per (?:iteration|step))?(?: ?\((?P<unit>ms|s)\))?" + _SEP + _NUM + r"(?:\s?(?P<unit2>ms|s)\b)?"
)
#: Keywords before which these may stand: `lm loss`, `train_loss`, `global_step`; a letter before `loss` is another word.
_STEP_KEYS: Final = ("iteration", "step", "iter")
_TIME_KEYS: Final = ("elapsed time", "timing in s", "step_time", "step time", "iter time", "iter_time", "iteration time", "step_s")
_FIELDS: Final = (
    ("lr", "learning rate"),
    ("lr", "learning_rate"),
    ("lr", "lr"),
    ("scale", "loss scale"),
    ("scale", "loss_scale"),
    ("skipped", "skipped iterations"),
    ("nans", "nan iterations"),
)
_EVAL: Final = re.compile(r"\b(?:valid(?:ation)?|eval(?:uation)?|test|val)[_ /]")
#: Losses that are parts or other quantities (`aux_loss`, `load_balancing loss`, `stop_loss`) do not speak for the training loss.
_LOSS_BEFORE: Final = re.compile(
    r"(?:^|[^\w])(?:lm[ _]|reduced_train_|train(?:ing)?[_ /]|total[_ ]|avg[_ ]|global_avg_|ce[_ ]|loss/train/|loss_metrics/|"
    r"mean[_ ])?$"
)
#: The prefix of a step line is short; a search through the whole line would cost as much as all the rest.
STEP_HEAD_CHARS: Final = 64
#: Occurrences of a keyword that are looked at in one line.
_TRIES: Final = 8


def _after(low: str, word: str, pattern: re.Pattern[str], *, whole: bool = True) -> re.Match[str] | None:
    """The first place where `pattern` follows `word`; `whole`: no letter or digit may stand before the word."""
    at = low.find(word)
    for _ in range(_TRIES):
        if at < 0:
            return None
        if (not whole or at == 0 or not low[at - 1].isalnum()) and (match := pattern.match(low, at + len(word))):
            return match
        at = low.find(word, at + 1)
    return None


def _first(low: str, words: tuple[str, ...], pattern: re.Pattern[str], *, whole: bool) -> re.Match[str] | None:
    """The first of the words that `pattern` follows somewhere."""
    for word in words:
        if word in low and (match := _after(low, word, pattern, whole=whole)):
            return match
    return None


def _loss(low: str) -> re.Match[str] | None:
    at = low.find("loss")
    for _ in range(_TRIES):
        if at < 0:
            return None
        if (match := _AFTER_LOSS.match(low, at + 4)) and (
            at == 0 or low[at - 1] in "|{,('\"" or _LOSS_BEFORE.search(low, max(0, at - 24), at)
        ):
            return match
        at = low.find("loss", at + 1)
    return None


def parse_step(line: str, year: int) -> Record | None:
    """A record `step` with what the line says: step, total, loss, grad_norm, lr, scale, skipped, nans, step_s, eval.

    A line is a step line if it has a step number and one of loss, gradient norm or step time, or if it is a metrics
    dictionary with a loss. NaN and infinity come as floats.
    """
    line = plain(line)
    low = line.lower()
    loss = _loss(low)
    grad = _after(low, "norm", _AFTER, whole=False) if "grad" in low else None
    seconds = _first(low, _TIME_KEYS, _AFTER_TIME, whole=False) if "time" in low or "timing" in low or "step_s" in low else None
    if loss is None and grad is None and seconds is None:
        return None
    step = _first(low, _STEP_KEYS, _AFTER_STEP, whole=True)
    if step is None and not (loss and "{" in low and ("learning_rate" in low or "epoch" in low or "grad_norm" in low)):
        return None
    data: dict[str, Any] = {}
    if step:
        data["step"] = int(step["v"])
        if step["total"]:
            data["total"] = int(step["total"])
    for key, match in (("loss", loss), ("grad_norm", grad)):
        if match:
            data[key] = float(match["v"])
    if seconds:
        data["step_s"] = float(seconds["v"]) / (1000 if "ms" in (seconds["unit"], seconds["unit2"]) else 1)
    for key, word in _FIELDS:
        if key not in data and word in low and (match := _after(low, word, _AFTER)):
            data[key] = float(match["v"])
    if loss is not None and ("val" in low or "test" in low) and _EVAL.search(low, 0, loss.end()):
        data["eval"] = True
    head = line[:STEP_HEAD_CHARS]
    rank = RANK_TAG.search(head) if "ank" in head else None
    when = stamp(head, year)
    return Record(
        what="step", text=line[:TEXT_CHARS_MAX], rank=int(rank[1]) if rank else None, wall=when.seconds if when else None,
        yearless=bool(when and when.yearless), data=data,
    )  # fmt: skip


_WHO: Final = (
    r"(?:Rank (?P<rank>\d{1,7}), node (?P<node>[\w.-]{1,120}), device (?P<gpu>\d{1,3}), )?(?:iteration #(?P<step>\d{1,12}): )?"
)
_RESULTS: Final = r"(?:.{0,80}?\((?P<result>.{1,120}?)\)\s*$)?"


def _rerun(verdict: str) -> Any:
    return lambda data: data | {"verdict": verdict}


RERUN_GATES: Final[Gates] = (
    gate(
        "nexpected result",
        rule(
            "rerun_unexpected",
            "Unexpected result",
            r"Unexpected result (?P<result>\S{1,60}) on rank (?P<rank>\d{1,7}) at iteration #?(?P<step>\d{1,12})"
            r"(?:.{0,60}?message='(?P<message>[^']{0,200}))?",
        ),
        rule(
            "rerun", "First rerun", _WHO + r"First rerun: unexpected result is not reproducible" + _RESULTS, fix=_rerun("transient")
        ),
        rule(
            "rerun", "First rerun", _WHO + r"First rerun: unexpected result is reproducible" + _RESULTS, fix=_rerun("repeats_here")
        ),
        rule(
            "rerun",
            "Second rerun",
            _WHO + r"Second rerun: unexpected result is not reproducible" + _RESULTS,
            fix=_rerun("persistent"),
        ),
        rule("rerun", "Second rerun", _WHO + r"Second rerun: unexpected result is reproducible" + _RESULTS, fix=_rerun("correct")),
    ),
    gate(
        "Possible ",
        rule("rerun", "transient error", _WHO + r"Possible transient error", fix=_rerun("transient")),
        rule("rerun", "persistent error", _WHO + r"Possible persistent error", fix=_rerun("persistent")),
    ),
    gate(
        "Correct result (but",
        rule("rerun", "Correct result", _WHO + r"Correct result \(but possible [Aa]pplication error", fix=_rerun("correct")),
    ),
    gate(
        "rerun on a different GPU",
        rule("rerun", "different GPU", _WHO + r"Need to rerun on a different GPU", fix=_rerun("repeats_here")),
    ),
    gate("rescheduled on the same GPU", rule("rerun_same_gpu", "rescheduled on the same GPU")),
    gate(
        "found ",
        rule(
            "nan_local",
            "found ",
            r"(?:[Rr]ank (?P<rank>\d{1,7}): )?found (?P<what_number>NaN|Inf|nan|inf) in (?P<where>local [\w ]{2,60}|input[\w "
            r"]{0,40}|batch[\w ]{0,40}|gradients?[\w ]{0,40}|loss[\w ]{0,40})"
            r"(?:.{0,120}?[Dd]evice:? (?P<gpu>\d{1,3}),? node:? (?P<node>[\w.-]{1,120}))?",
        ),
    ),
)

NAN_GATES: Final[Gates] = (
    gate(
        "OVERFLOW!",
        rule(
            "overflow",
            "OVERFLOW!",
            r"OVERFLOW! Rank (?P<rank>\d{1,7}) Skipping step\.(?:.{0,40}?loss scale: (?P<scale>[\d.]{1,20}))"
            r"?(?:.{0,40}?[Rr]educing to (?P<next_scale>[\d.]{1,20}))?",
        ),
    ),
    gate("loss scale", rule("scale_minimum", "inimum", r"loss scale already at minimum|[Mm]inimum loss scale reached")),
    *(
        gate(
            word,
            rule(
                "nan_text",
                word,
                r"(?:\brank[ :=]?(?P<rank>\d{1,7})\b.{0,80}?)?(?:loss|grad\w{0,6}|norm|weights?|logits|activations?|output|"
                r"param\w{0,6}|batch|input|sample|tensor)\b[^|\n]{0,60}?\b(?:is|are|became|becomes|was|contains?|has|have|=|:|"
                r"of|went|turned|to|non-finite|not finite)\b[^|\n]{0,30}?\b(?:nans?|infs?|non-finite)\b(?![_(=])"
                r"|\b(?:nans?|infs?|non-finite)\b (?:\w{1,12} ){0,2}?(?:detected|found|encountered|in|loss|gradients?|grads?|"
                r"values?)\b.{0,80}",
                flags=_I,
                fix=None,
            ),
        )
        for word in ("NaN", " nan", "non-finite")
    ),
    *(
        gate(
            word,
            rule(
                "replica_mismatch",
                word,
                r"(?:(?:weight|param\w{0,6}|gradient|replica|result|determinism|output)[\w ]{0,40} )?(?:hash\w{0,3}|"
                r"checksums?|digests?|check)\b.{0,80}?"
                r"(?:mismatch|do(?:es)? not match|don't match|differs?|failed)(?:.{0,80}?\brank[ =:]?(?P<rank>\d{1,7})\b)?",
                flags=_I,
            ),
        )
        for word in (" hash", "hecksum", "eterminism")
    ),
)

LIFE_GATES: Final[Gates] = (
    gate(
        "heckpoint",
        rule(
            "resumed",
            "load",
            r"(?i:(?:successfully )?(?:loaded|loading|resum\w{2,3}|restor\w{2,3})[^\n]{0,60}checkpoint)(?:.{0,160}?(?:at|"
            r"iteration|step|iter_|step_|global_step)[ _=-]{0,2}(?P<step>\d{1,12}))?",
            flags=0,
        ),
        rule(
            "resumed",
            "esum",
            r"[Rr]esum\w{2,3}[^\n]{0,60}checkpoint(?:.{0,160}?(?:at|iteration|step|iter_|step_)[ _=-]{0,2}(?P<step>\d{1,12}))?",
        ),
        rule("fresh_start", "random", r"will not load any checkpoints and will start from random"),
        rule(
            "saved",
            "sav",
            r"(?i:successfully saved|saved)[^\n]{0,20}checkpoint(?:.{0,120}?(?:iteration|step|iter_|step_)[ "
            r"_=:-]{0,2}\s{0,6}(?P<step>\d{1,12}))?",
        ),
        rule("saved", "omplete", r"checkpoint (?:step|iter)?_?(?P<step>\d{1,12})? ?(?:complete|committed|saved)"),
        rule(
            "phase_checkpoint",
            "sav",
            r"(?i:saving|writing|start\w{0,3} (?:to )?sav\w{1,3}|flushing|uploading)[^\n]{0,40}checkpoint",
        ),
        rule("phase_checkpoint", "writing", r"writing[^\n]{0,40}checkpoint"),
    ),
    gate(
        "esuming from",
        rule("resumed", "esuming from", r"esuming from (?:iteration|step|checkpoint)?\S{0,120}?(?P<step>\d{1,12})?\b"),
    ),
    gate(
        "valuati",
        rule(
            "phase_eval",
            "valuat",
            r"(?i:(?:start\w{0,3}|begin\w{0,4}|running|evaluating)\b.{0,30}(?:evaluat|validat)|\bevaluating\b|evaluation started)",
        ),
    ),
    gate("ompil", rule("phase_compile", "ompil", r"(?i:compiling|recompil|torch\.compile|compilation (?:start|of|took))")),
)
