"""Coverage-guided fuzzing of the parsers, by hand: `python bench/fuzz_parsers.py -max_total_time=600`.

Needs the package atheris (in an environment of its own: it has wheels for few interpreters) beside this project. Stops at the first
crash, at an input that takes more than ten seconds, and when memory grows over 512 MB (`-rss_limit_mb`, `-timeout` change that).
"""

import sys

import atheris

with atheris.instrument_imports(include=["outrider.parsers", "detectors.inspect"]):
    from detectors.inspect.context import Context
    from detectors.inspect.findings import EvidenceLine
    from detectors.inspect.kmsg_gpu import judge_gpus
    from detectors.inspect.kmsg_host import judge_host
    from detectors.inspect.kmsg_network import judge_network
    from detectors.inspect.metrics_table import Table
    from detectors.inspect.xid_events import XidEvents
    from outrider.catalogue.codes import CodeBook
    from outrider.parsers.exposition import BadSampleError, ExpositionReader
    from outrider.parsers.kernel_log import KernelLog, lines_that_matter

CONTEXT = Context(node="n1")
CODES = CodeBook()
LINES_MAX = 40


def one_input(data: bytes) -> None:
    """The bytes as a kernel log and as a page of metrics, through parsers and judges."""
    text = data.decode("utf-8", "replace")
    log, events, told = KernelLog(bare=True, user_records=True), XidEvents(CODES), []
    for number, line in list(lines_that_matter(text, 1))[:LINES_MAX]:
        if (signal := log.feed(line)) is None:
            continue
        evidence = EvidenceLine(line=number, text=line)
        if signal.kind in ("xid", "sxid"):
            events.add(signal, evidence, number)
        else:
            told.append((signal, evidence))
    found = judge_gpus("n1", events, [], CONTEXT) + judge_host("n1", told, CONTEXT)
    found += judge_network("n1", [one for one in told if one[0].kind in ("link", "pcie")], CONTEXT, set())
    for one in found:
        one.to_json()
    reader, table = ExpositionReader(), Table(CONTEXT)
    for number, line in enumerate(text.splitlines()[:LINES_MAX], 1):
        try:
            sample = reader.feed(line)
        except BadSampleError:
            continue
        if sample is not None:
            table.add(sample, reader.t, number, line, None)


if __name__ == "__main__":
    atheris.Setup([sys.argv[0], "-timeout=10", "-rss_limit_mb=512", "-max_len=4096", *sys.argv[1:]], one_input)
    atheris.Fuzz()
