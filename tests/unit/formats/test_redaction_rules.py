"""The data file of redaction rules: each finds its sample in every place and form, and nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from conftest import real_traces
from secret_samples import SPELLINGS, Sample, all_samples, spelled
from trace_reading import SALT, ReadTrace, detect
from tracewarehouse.errors import PolicyError, TraceFormatError
from tracewarehouse.formats.redact.rules import (
    NO_POLICY,
    POLICY_VARIABLE,
    Policy,
    is_random,
    policy_of,
    rules,
)
from tracewarehouse.formats.redact.text import Redactor

REDACTOR = Redactor(SALT)
SAMPLES = all_samples()
RULES = rules()


def named(sample: Sample) -> str:
    return sample.rule


def forms(sample: Sample) -> dict[str, str]:
    """The sample in JSON text as profilers and launchers write it."""
    text, escaped = sample.text, "".join(f"\\u{ord(sign):04x}" for sign in sample.text)
    return {
        "value": json.dumps({"name": text}),
        "key": json.dumps({text: 1}),
        "in text": json.dumps({"cmd": f"first {text} last"}),
        "second line": json.dumps({"cmd": f"first\n{text}\nlast"}),
        "list": json.dumps({"argv": ["python", text]}),
        "json": json.dumps({"config": json.dumps({"deep": [text]})}),
        "python": json.dumps({"config": repr({"deep": [text]})}),
        "python lines": json.dumps({"config": repr({"deep": f"first\n{text}"})}),
        "escaped": f'{{"name":"{escaped}"}}',
        "slashes": json.dumps({"name": text}).replace("/", "\\/"),
    }


@pytest.mark.parametrize("sample", SAMPLES, ids=named)
def test_every_rule_finds_its_sample_in_every_form(sample: Sample) -> None:
    for form, text in forms(sample).items():
        assert REDACTOR.flagged(pa.array([text])) == [0], form
        clean, found = REDACTOR.text(text)
        assert found and sample.secret not in json.dumps(json.loads(clean)), form
        assert sample.secret not in str(json.loads(clean)), form
        assert REDACTOR.text(clean) == (clean, []), form


@pytest.mark.parametrize("sample", SAMPLES, ids=named)
def test_a_rule_that_is_off_finds_nothing_of_its_own(sample: Sample) -> None:
    off = Redactor(SALT, Policy(off=(sample.rule,)))
    kinds = {hit.kind for hit in off.text(json.dumps({"name": sample.text}))[1]}
    assert sample.rule not in kinds


def test_there_are_more_than_sixty_families() -> None:
    names = [sample.rule for sample in SAMPLES]
    assert len(names) == len(set(names)) >= 90


def test_patterns_are_those_of_re2_and_starts_are_as_in_a_file() -> None:
    for token in RULES.tokens:
        pc.match_substring_regex(pa.array([""]), token.pattern)
        without_classes = re.sub(r"\[[^\]]*\]|\\+\*/", "", token.quick)
        assert not set('"/\n') & set(without_classes), token.name
    for text in RULES.texts:
        pc.match_substring_regex(pa.array([""]), text.head)


def test_no_rule_finds_a_random_text_of_words() -> None:
    chosen, words = random.Random(5), Path(__file__).read_text().split()
    for _ in range(2_000):
        text = " ".join(chosen.choices([word for word in words if "SAMPLES" not in word], k=6))
        if not re.search(r"(?i)secret|token|pass|key|auth|cookie|connection|bearer|=|:", text):
            assert REDACTOR.clean(text) == (text, [])


SECRET_KEYS = [
    *("passphrase", "SSH_PASSPHRASE", "Cookie", "set-cookie", "connection_string", "ConnectionString"),
    *("account_key", "AccountKey", "bearer", "secretkey", "AZURE_STORAGE_ACCOUNT_KEY", "pgPassword"),
    *("x-amz-security-token", "refreshToken", "Client Secret", "WANDB_API_KEY", "git_credentials"),
    *(
        "PGPASSWORD",
        "MYSQLPASSWORD",
        "rootpassword",
        "PASSWORD_2",
        "HF_TOKEN2",
        "RABBITMQ_DEFAULT_PASS",
        "bindpw",
    ),
]
PLAIN_KEYS = [
    *("eos_token", "pad_token", "tokenizer.unk_token", "time_per_token", "next_token", "cookiecutter"),
    *("tokens_per_second", "secretary", "author", "pinned", "keynote", "designature", "spin", "authors"),
]
WEAK_KEYS = ["key", "signing-key", "auth", "PIN", "db_pwd", "signature", "session_id", "sessionId", "x.key"]


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_more_names_of_secrets(key: str) -> None:
    assert REDACTOR.text(json.dumps({key: "plain words"}))[1]


@pytest.mark.parametrize("key", PLAIN_KEYS)
def test_names_that_only_look_like_secrets(key: str) -> None:
    text = json.dumps({key: "a8Fk20slQz81LmPo", "cmd": f"x --{key} a8Fk20slQz81LmPo"})
    assert REDACTOR.text(text) == (text, [])


@pytest.mark.parametrize("key", WEAK_KEYS)
def test_weak_names_need_a_random_value(key: str) -> None:
    secret = "a8Fk20slQz81LmPo"
    texts = [{key: secret}, {"cmd": f"run {key}={secret} x"}, {"cmd": f"{{'{key}': '{secret}'}}"}]
    for text in map(json.dumps, texts):
        assert REDACTOR.flagged(pa.array([text])) == [0]
        assert REDACTOR.text(text)[1], text
    plain = ["model.layers.0.self_attn.q_proj", "/usr/lib/python3.11/site-packages", "plain words of text"]
    plain += ["float32[128, 4096, 4096]", "12345678901234567890", "6e4c5d49-31d6-410f-83cf-8827e227851d"]
    plain += [
        "short1A",
        "aaaaaaaaaaaaaaaaaaaaaaaa",
        "layer_norm_backward_kernel",
        "Float8_e4m3fn,Float8_e4m3fn",
    ]
    text = json.dumps([{key: value} for value in plain])
    assert REDACTOR.text(text) == (text, [])


@pytest.mark.parametrize(
    "key", ["pass", "upload_pass", "pw", "SLURM_JWT", "SENTRY_DSN", "webhook", "id_rsa", "otp"]
)
def test_likely_names_need_a_value_that_is_not_of_words(key: str) -> None:
    secret = "Tr0ub4dor&3xy"
    for text in map(
        json.dumps, ({key: secret}, {"cmd": f"run {key}={secret} x"}, {"cmd": f"'{key}': '{secret}'"})
    ):
        assert REDACTOR.flagged(pa.array([text])) == [0]
        assert REDACTOR.text(text)[1], text
    plain = [
        "inductor_post_grad",
        "words of text",
        "https://example.org/path",
        "12345678",
        "/root/.ssh/id_rsa",
    ]
    text = json.dumps([{key: value} for value in plain])
    assert REDACTOR.text(text) == (text, [])


def test_what_is_random() -> None:
    assert all(map(is_random, ["a8Fk20slQz81LmPo", "0123456789abcdef0123", "wJalrXUtnFEMI/K7MDENG+bPx"]))
    assert all(map(is_random, ["}x#q9;T!a]L/w&s(", "kX-3_vQ.w7R,t9Z+b"]))
    assert not any(map(is_random, ["a8Fk20slQz81Lm", "4096x4096x1024x512", "nccl:all_reduce:group:0"]))
    assert not any(
        map(is_random, ["c10::Half,c10::BFloat16", "sm90_xmma_gemm_f16f16_f32", "a,b,c,d,e,f,g,h,i"])
    )


SECRET_TEXTS = [
    *(
        "export PASSWORD=hunter22x",
        "PASSWORD='correct horse battery'",
        "docker run -e DB_PASSWD=s3cr3tvalue img",
    ),
    *("python t.py --hf-token abcdefghij", "python t.py --password=abcdefghij", 'x --api_key "abcdefghij k"'),
    *("Authorization: Bearer abcdefghij", "Cookie: sid=abcdefghij; b=2", "X-Functions-Key: abcdefghij"),
    *(
        "curl -H 'X-Auth-Token: abcdefghij' u",
        "connect(password='abcdefghij', n=1)",
        "{'token': b'abcdefghij'}",
    ),
    *(
        "Namespace(hf_token='abcdefghij', lr=0.1)",
        '{\\"password\\": \\"abcdefghij\\"}',
        "https://h/?token=abcdefghij&x",
    ),
    *("Server=h;Pwd=ab cd efgh ij;x=1", "{'tokens': {'api_token': ['abcdefghij', 'bcdefghijk']}}"),
    *(
        "['t.py', '--auth-token', 'abcdefghij']",
        "auth:\n  password: abcdefghij1\n",
        "login me password abcdefghij",
    ),
]
PLAIN_TEXTS = [
    *("token=None", "token=self.token", "get(token=get_token())", "tokens=4096", "num_tokens=4096, x=1"),
    *(
        "password=$PASSWORD",
        "PASSWORD=${DB_PASSWORD}",
        "--token <your token>",
        "--password-file /run/secrets/db",
    ),
    *("token == 'abcdefghij'", "eos_token='<|endoftext|>'", "token: embedding lookup", "Authorization: none"),
    *(
        "secret_name=production-db",
        "--token --verbose",
        "cookie=********",
        "API_KEY=xxxxxxxxxxxx",
        "token, 'abcdefghij'",
    ),
    *(
        "aten::token_select key=value pairs",
        "site-packages/x/token.py(12): next_token",
        "password policy: strong",
    ),
    *("DB_PASS=$DB_PASS2", "password={{ db_password }}", "TOKEN='${HF_TOKEN:-none}'", "--token %(token)s"),
    *(
        "TOKEN_A=/var/run/secrets/token",
        "API_TOKEN=~/.cache/token",
        "--token --max-steps=1000",
        "Password: required",
    ),
    *(
        "forward_pass=fuse_attention_v2",
        "pass: inductor_post_grad_pass",
        "token::KindOfToken x",
        "set token count",
    ),
    *("ssh://git@example.org/a/b", "https://example.org:8080/a@b", "docker://example.org:5000/a/b@sha256"),
    *(
        "https://example.org/?code=42&x",
        "curl -u svc https://example.org:443",
        "<token>embedding of words</b>",
    ),
    *(
        "mysql -p main",
        "wandb login --relogin",
        "password is required_by_policy",
        "name: layer_norm value: 12345678",
    ),
]


def test_checksums_that_nothing_names_stay() -> None:
    for number in range(500):
        for kind in ("md5", "sha1", "sha256", "sha512"):
            digest = hashlib.new(kind, str(number).encode())
            for text in (digest.hexdigest(), base64.b64encode(digest.digest()).decode()):
                assert REDACTOR.clean(f"built {text} twice") == (f"built {text} twice", [])


@pytest.mark.parametrize("text", SECRET_TEXTS)
def test_secrets_given_away_by_the_text_before_them(text: str) -> None:
    clean, kinds = REDACTOR.clean(text)
    assert kinds and not re.search("abcdefgh|bcdefghijk|hunter22|correct horse|s3cr3t|ab cd", clean), clean
    assert REDACTOR.suspects(pa.array([text])) == [0]
    assert REDACTOR.flagged(pa.array([json.dumps({"args": {"cmd": text}})])) == [0]


@pytest.mark.parametrize("text", PLAIN_TEXTS)
def test_code_and_placeholders_stay(text: str) -> None:
    assert REDACTOR.clean(text) == (text, [])


@pytest.mark.parametrize("count", [60, pytest.param(20_000, marks=pytest.mark.deep)])
@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda spelling: spelling[0])
def test_random_values_are_stored_in_one_of_a_thousand_texts(
    spelling: tuple[str, str, int], count: int
) -> None:
    """Whole, or in parts of five characters: what a value begins with, or has within, does not matter."""
    chosen, stored = random.Random(f"{spelling}"), []
    for _ in range(count):
        text, value = spelled(*spelling, chosen)
        found = json.loads(REDACTOR.text(json.dumps({"args": {"cmd": text}}))[0])["args"]["cmd"]
        stored += [text] if any(value[at : at + 5] in found for at in range(len(value) - 4)) else []
    assert len(stored) <= max(1, count // 1000), stored


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda spelling: spelling[0])
def test_the_search_in_bulk_finds_each_spelling(spelling: tuple[str, str, int]) -> None:
    chosen = random.Random(3)
    texts = [spelled(*spelling, chosen)[0] for _ in range(20)]
    found = [at for at, text in enumerate(texts) if REDACTOR.clean(text)[1]]
    assert len(found) >= 19 and set(found) <= set(REDACTOR.suspects(pa.array(texts)))
    assert set(found) <= set(REDACTOR.flagged(pa.array([json.dumps([text] * 9) for text in texts])))


FIRST_SIGNS = ["$", "<", "{", "%", "(", "[", "@", "/", "-", "=", "."]


@pytest.mark.parametrize("sign", FIRST_SIGNS)
def test_a_secret_may_begin_with_any_sign(sign: str) -> None:
    for name in ("DB_PASSWORD=", "api_token=", "password: ", "--auth-token ", "Authorization: Bearer "):
        secret = f"{sign}a8Fk20slQz81LmPo"
        clean, kinds = REDACTOR.clean(f"{name}{secret} x")
        assert kinds and "a8Fk" not in clean, (name, clean)


def test_a_value_ends_at_a_control_character() -> None:
    text = "SHARED_TOKEN=a8Fk20slQz81LmPo\0HOME=/root\0TERM=xterm\0SESSION_KEY=4242\0PATH=/usr/bin"
    clean, kinds = REDACTOR.clean(text)
    assert kinds == ["assignment"] and clean.endswith(text[text.index("\0") :])


def test_the_name_of_a_secret_beside_its_value() -> None:
    secret = "a8Fk20slQz81LmPo"
    text = json.dumps({"env": [{"name": "DB_PASS", "value": secret}, {"name": "HOME", "value": secret}]})
    clean, found = REDACTOR.text(text)
    assert [hit.path for hit in found] == ["$.env[0].value"]
    assert json.loads(clean)["env"][1] == {"name": "HOME", "value": secret}


def test_arguments_in_a_list_of_json() -> None:
    text = json.dumps(
        {"argv": ["t.py", "--password", "correct horse", "--steps", "plain words", "--token", "-x"]}
    )
    clean, found = REDACTOR.text(text)
    assert [hit.path for hit in found] == ["$.argv[2]"] and "correct horse" not in clean


HOSTILE = [
    *("eyJ" * 60_000, "sk-" * 60_000, "-eyJ" * 50_000, "\\" * 200_000, '"' * 200_000, '\\"' * 90_000),
    *("password=" * 20_000, '"token":\\\'' * 15_000, "-----BEGIN PRIVATE KEY" * 9_000, "://a:" * 40_000),
    *("token='" * 25_000, "--token " * 25_000, "login a password " * 10_000, "a" * 200_000, "=" * 200_000),
    *("".join(f'"token":{chr(92) * n}"' for n in range(600)), "['--token'," * 18_000, " \n" * 90_000),
    *("curl -u " * 20_000, "mysql -" * 30_000, "name: token " * 16_000, "<token>" * 25_000, "://a@" * 40_000),
    *("password=a.b" * 20_000, "password=" + "/a" * 90_000, "key=" + "a_" * 90_000, "a:5432:b:c:" * 18_000),
]


# Each begins what another rule looks for; the others are deep.
FEW = ("eyJeyJ", "password=", '"token":', "-----BEGIN", "://a:", "a" * 9, " \n")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, id=repr(text[:8]), marks=[] if text.startswith(FEW) else pytest.mark.deep)
        for text in HOSTILE
    ],
)
def test_hostile_strings_take_linear_time(text: str) -> None:
    short, full = (_cpu_seconds(text[: len(text) // part]) for part in (8, 1))
    assert full < 1.0 or full < 16 * short


def _cpu_seconds(text: str) -> float:
    before = time.process_time()
    REDACTOR.clean(text)
    return time.process_time() - before


def test_a_policy_changes_the_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(POLICY_VARIABLE, raising=False)
    assert policy_of(tmp_path) == NO_POLICY
    (tmp_path / "_tw").mkdir()
    allowed = "hf" + "_" + "this1is2an3example4"
    (tmp_path / "_tw" / "redact.toml").write_text(f"""
        [keys]
        secret = ["badge-id"]
        plain = ["page_token"]
        [[pattern]]
        name = "acme"
        pattern = 'acme_[a-z0-9]{{20}}'
        [allow]
        values = ["{allowed}"]
        [rules]
        off = ["twilio-api-key"]
    """)
    redactor = Redactor(SALT, policy_of(tmp_path))
    twilio = next(sample.text for sample in SAMPLES if sample.rule == "twilio-api-key")
    plain = {"page_token": "plain words", "a": allowed, "b": twilio}
    assert redactor.text(json.dumps(plain)) == (json.dumps(plain), [])
    found = redactor.text(json.dumps({"badgeId": "plain words", "x": "see acme_" + "a1" * 10}))[1]
    assert [hit.kind for hit in found] == ["key", "acme"]
    monkeypatch.setenv(POLICY_VARIABLE, str(tmp_path / "missing.toml"))
    with pytest.raises(PolicyError, match=r"missing\.toml: cannot be read"):
        policy_of(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[key]\nsecret = []", "unknown: key"),
        ("[keys]\nsecrets = []", "unknown: keys.secrets"),
        ("[keys]\nsecret = 'x'", "keys.secret is not a list"),
        ("[[pattern]]\nname = 'x'", "has a name and a pattern"),
        ("[[pattern]]\nname = 'x'\npattern = '(?<=a)b'", "pattern x: not an RE2 pattern"),
        ("[[pattern]]\nname = 'x'\npattern = 'a*'", "matches an empty text"),
        ("= 1", "cannot be read as a redaction policy"),
    ],
)
def test_a_policy_that_cannot_be_read(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "_tw").mkdir()
    (tmp_path / "_tw" / "redact.toml").write_text(text)
    with pytest.raises(PolicyError, match=message):
        policy_of(tmp_path)


def test_a_policy_cannot_switch_off_an_unknown_rule() -> None:
    with pytest.raises(PolicyError, match="no redaction rule nonsense"):
        Redactor(SALT, Policy(off=("nonsense",)))


@pytest.mark.deep
def test_real_traces_have_no_other_redaction_than_their_token() -> None:
    folder = real_traces()
    if folder is None:
        pytest.skip("no real traces")
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with suppress(TraceFormatError):
            if len(tuple(detect(path).open(path).parts())) != 1:
                continue  # several ranks in one file: not JSON
            hits = ReadTrace(path).outcome.redactions
            found += [(hit.event_id, hit.path, hit.kind) for hit in hits]
    assert set(found) == {(None, "$.metadata.system.env.HF_TOKEN", "key")}
