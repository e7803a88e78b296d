"""Made-up secrets, put together at test time by the samples of the redaction rules."""

from __future__ import annotations

import gzip
import json
import random
import re
import string
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tracewarehouse.formats.redact.rules import samples

_CLASSES = {
    "alnum": string.ascii_letters + string.digits,
    "letters": string.ascii_letters,
    "hex": "0123456789abcdef",
    "digits": string.digits,
    "base32": "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
    "b64": string.ascii_letters + string.digits + "+/",
    "word": string.ascii_letters + string.digits + "_-",
    "lower": string.ascii_lowercase,
    "printable": "".join(sorted(set(string.printable[:94]) - set("\"'`\\"))),
}
_RANDOM = re.compile(rf"\{{({'|'.join(_CLASSES)}):(\d+)\}}")
_SECRET = re.compile(r"\{secret(?::([^{}]*))?\}")
_SEED = 20_261

# Texts that give a secret away, and the class and length of the random value in place of {}.
SPELLINGS = [
    ("AWS_SECRET_ACCESS_KEY={}", "b64", 40),
    ("train --auth-token {} --steps 5", "word", 32),
    ("DB_PASSWORD={}", "printable", 16),
    ("connect(password={})", "printable", 16),
    ("password: {}", "printable", 16),
    ("train -password {}", "printable", 16),
    ("run /password:{}", "printable", 16),
    ("PGPASSWORD={} psql -h db", "printable", 16),
    ("SSHPASS={} sshpass -e ssh db", "printable", 16),
    ("SMTP_PASS={}", "alnum", 12),
    ("MYSQL_ROOT_PASSWORD={}", "digits", 12),
    ("dbpassword: {}", "lower", 16),
    ("PMI_SHARED_SECRET={}\0NEXT=of words", "digits", 20),
    ("launch {{'pass': '{}'}}", "alnum", 12),
    ("bindpw={}", "alnum", 12),
    ("SLURM_JWT={}", "alnum", 20),
    ("GH_PAT={}", "alnum", 24),
    ("LICENSE_KEY={}", "alnum", 20),
    ("KAGGLE_KEY={}", "hex", 32),
    ("client-key-data: {}", "b64", 60),
    ("curl -s -u svc:{} https://example.org", "printable", 16),
    ("mysql -uroot -p{} main", "printable", 16),
    ("sshpass -p {} ssh db", "printable", 16),
    ("docker login -u svc -p {} example.org", "word", 32),
    ("redis-cli -h db -a {} ping", "printable", 16),
    ("wandb login {}", "hex", 40),
    ("aws configure set aws_secret_access_key {}", "b64", 40),
    ("openssl rsa -in a.pem -passin pass:{}", "printable", 16),
    ("git clone https://{}@example.org/a/b", "alnum", 20),
    ("amqp://svc:{}@mq.example.org/", "b64", 40),
    ("redis://:{}@db.example.org:6379/0", "word", 24),
    ("<server><password>{}</password></server>", "printable", 16),
    ("env:\n- name: DB_PASSWORD\n  value: {}\n", "printable", 16),
    ('<add key="Password" value="{}"/>', "alnum", 16),
    ("get(url, auth=HTTPBasicAuth('svc', '{}'))", "alnum", 20),
    ("https://acme.azurewebsites.net/api/run?code={}", "word", 40),
    ("https://example.org/?access_token={}&page=1", "word", 32),
    ("Authorization: Bearer {}", "printable", 20),
]


@dataclass(frozen=True)
class Sample:
    """A text that a rule must find, and the part of it that may be stored nowhere."""

    rule: str
    text: str
    secret: str


def all_samples(seed: int = _SEED) -> list[Sample]:
    """One of each rule."""
    chosen = random.Random(seed)
    return [_sample(name, template, chosen) for name, template in samples()]


def random_text(kind: str, length: int, chosen: random.Random) -> str:
    """Random text of a class, with every kind of character that a check wants."""
    while True:
        text = "".join(chosen.choice(_CLASSES[kind]) for _ in range(length))
        # A random value has no place where it could be cut in two, and none that looks like a word.
        if kind != "alnum" or length < 8 or _is_mixed(text):
            return text


def spelled(spelling: str, kind: str, length: int, chosen: random.Random) -> tuple[str, str]:
    """A text with a random value in place of {}, and the value."""
    value = "".join(chosen.choices(_CLASSES[kind], k=length))
    return spelling.replace("{{", "{").replace("}}", "}").replace("{}", value), value


def _is_mixed(text: str) -> bool:
    return all(re.search(kind, text) for kind in ("[a-z]", "[A-Z]", "[0-9]"))


def _sample(name: str, template: str, chosen: random.Random) -> Sample:
    text = _RANDOM.sub(
        lambda match: random_text(match[1], int(match[2]), chosen), template.replace("{+}", "")
    )
    marked = _SECRET.search(text)
    if marked is None:
        return Sample(name, text, text)
    secret = marked[1] or random_text("alnum", 24, chosen)
    return Sample(name, text[: marked.start()] + secret + text[marked.end() :], secret)


def needles(sample: Sample) -> list[str]:
    """What must be in no stored byte: the lines of the secret, without the slashes that JSON may escape."""
    lines = [
        line for line in sample.secret.splitlines() if not line.startswith(("---", "PuTTY", "Private-L"))
    ]
    parts = [part for line in lines for part in re.split(r"[/\\]", line)]
    return [part for part in parts if len(part) >= 8]


def places(text: str) -> dict[str, dict[str, Any]]:
    """An event for each place of a trace that holds text; `header` has what precedes the events."""
    plain = {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 2, "ts": 5.0, "dur": 2.5}
    kernel = {"ph": "X", "cat": "kernel", "name": "nccl", "pid": 0, "tid": 7, "ts": 9.0, "dur": 1.0}
    flow = {"ph": "s", "cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 2, "ts": 5.0}
    return {
        "name": plain | {"name": text},
        "category": plain | {"cat": text},
        "pid": plain | {"pid": text},
        "tid": plain | {"tid": text},
        "id": flow | {"id": text},
        "argument": plain | {"args": {"note": text}},
        "argument key": plain | {"args": {text: 1}},
        "list": plain | {"args": {"l": [1, ["a", text]]}},
        "json": plain | {"args": {"config": json.dumps({"deep": [text]})}},
        "python": plain | {"args": {"config": repr({"deep": [text]})}},
        "typed argument": kernel
        | {"args": {"Process Group Name": text, "Collective name": text, "dtype": text}},
        "types": plain | {"args": {"Input type": ["float", text]}},
        "member": plain | {"color": text, "bp": text},
        "member key": plain | {text: "x"},
        "process name": {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": text}},
        "stack": plain | {"args": {"Call stack": f"a.py(1): f;{text};b.py(2): g"}},
        "rounded time": plain | {"ts": 1.00001, "args": {"note": text}},
        "repeated argument": plain | {"args": {"stream": [text], "note": text}},
        "counter": {"ph": "C", "name": text, "pid": 1, "ts": 6.0, "args": {text: 3}},
    }


def injected(texts: Sequence[str]) -> bytes:
    """A trace with each text in each place."""
    events: list[Any] = [event for text in texts for event in places(text).values()]
    events += texts
    header = {
        "traceName": " ".join(texts),
        "metadata": {"env": {f"V{at}": text for at, text in enumerate(texts)}, "argv": list(texts)},
        "keys": dict.fromkeys(texts, 1),
        "hostname": texts[0],
        "deviceProperties": [{"id": 0, "name": texts[-1]}],
        "stackFrames": {"1": {"name": " ".join(texts), "category": "x"}},
    }
    return json.dumps({**header, "traceEvents": events, "tail": list(texts)}).encode()


def stored_needles(root: Path, found: Iterable[str]) -> dict[str, list[str]]:
    """Text → the files below `root` that hold it, in their bytes, decoded columns, or path."""
    wanted = list(found)
    where: dict[str, list[str]] = {}
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        place = str(path.relative_to(root))
        held = "\n".join((place, path.read_bytes().decode("latin-1"), *_decoded(path)))
        for text in wanted:
            if text in held:
                where.setdefault(text, []).append(place)
    return where


def _decoded(path: Path) -> Iterator[str]:
    """The rows of a Parquet file as text, and its metadata."""
    if path.suffix == ".gz":
        yield gzip.decompress(path.read_bytes()).decode("latin-1")
    if path.suffix != ".parquet":
        return
    table = pq.read_table(path)
    yield str(pq.read_metadata(path).metadata)
    for column in table.columns:
        yield from ("\0".join(map(str, chunk.to_pylist())) for chunk in column.chunks)
