"""Which addresses may be read, and how typed ones are understood."""

import time

import pytest

from live.scrape_address import allowed_hosts, checked_addresses, parse_address, resolve, resolve_in_time
from planner.facts import PlanError


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("localhost:8000", "http://localhost:8000"),
        (" http://localhost:8000/metrics ", "http://localhost:8000"),
        ("http://localhost:8000/v1/models", "http://localhost:8000"),
        ("https://gpu1/", "https://gpu1"),
        ("http://0.0.0.0:8000", "http://127.0.0.1:8000"),
        ("http://[::]:8000", "http://[::1]:8000"),
        ("https://gateway/engines/a/metrics", "https://gateway/engines/a"),
    ],
)
def test_a_typed_address_names_the_servers_root(typed, shown):
    assert parse_address(typed).shown == shown


@pytest.mark.parametrize(
    ("typed", "word"),
    [
        ("file:///etc/passwd", "http://"),
        ("ftp://host", "http://"),
        ("gopher://127.0.0.1:70/x", "http://"),
        ("http://", "no host"),
        ("", "no host"),
        ("http://host:99999", "cannot be read"),
        ("http://host:0", "no host"),
        ("http://[::1", "cannot be read"),
        ("http://ho st:8000", "no host"),
        ("http://127.0.0.1%2f@evil:8000", "password"),
        ("http://localhost:8000/a b", "blank"),
        ("http://localhost:8000/?key=sesame", "password or parameters"),
        ("http://localhost:8000/metrics;key=sesame", "password or parameters"),
    ],
)
def test_an_address_that_cannot_be_read_is_refused_in_one_sentence(typed, word):
    with pytest.raises(PlanError, match=word) as refusal:
        parse_address(typed)

    assert refusal.value.field == "url"


def test_a_password_in_the_address_is_not_repeated():
    with pytest.raises(PlanError) as refusal:
        parse_address("http://me:sesame@localhost:8000")

    assert "sesame" not in refusal.value.text + str(refusal.value.value)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_loopback_needs_no_setting(address):
    assert checked_addresses(parse_address("http://anything:8000"), [address], ()) == (address,)


@pytest.mark.parametrize(
    "address",
    ["10.0.0.7", "169.254.169.254", "192.168.1.1", "8.8.8.8", "fe80::1%eth0", "::ffff:10.0.0.7", "no address"],
)
def test_any_other_host_is_refused_and_told_the_setting(address):
    with pytest.raises(PlanError, match=r"KVSCOPE_ALLOW_SCRAPE=gpu1"):
        checked_addresses(parse_address("http://gpu1:8000"), [address], ())


@pytest.mark.parametrize(
    ("setting", "url", "address", "is_allowed"),
    [
        ("gpu1", "http://gpu1:8000", "10.0.0.7", True),
        ("GPU1", "http://gpu1:8000", "10.0.0.7", True),
        ("gpu1:8000", "http://gpu1:8000", "10.0.0.7", True),
        ("gpu1:8001", "http://gpu1:8000", "10.0.0.7", False),
        ("gpu1.lab", "http://gpu1:8000", "10.0.0.7", False),
        ("*.lab.example", "http://gpu1.lab.example", "10.0.0.7", True),
        ("*.lab.example", "http://lab.example.evil", "10.0.0.7", False),
        ("10.0.0.0/24", "http://gpu1:8000", "10.0.0.7", True),
        ("10.0.0.0/24", "http://gpu1:8000", "10.0.1.7", False),
        ("10.0.0.7:8000", "http://10.0.0.7:8000", "10.0.0.7", True),
        ("[fd00::7]:8000", "http://[fd00::7]:8000", "fd00::7", True),
        ("fd00::/8", "http://gpu1:8000", "fd00::7", True),
        ("gpu1", "http://gpu1:8000", "169.254.169.254", False),
        ("169.254.169.254", "http://169.254.169.254", "169.254.169.254", True),
        (" , gpu2 , gpu1 ", "http://gpu1:8000", "10.0.0.7", True),
    ],
)
def test_the_allow_list_takes_hosts_ports_domains_and_networks(setting, url, address, is_allowed):
    def check():
        return checked_addresses(parse_address(url), [address], allowed_hosts(setting))

    if is_allowed:
        assert check() == (address,)
    else:
        with pytest.raises(PlanError):
            check()


def test_the_setting_is_one_variable_of_the_environment(monkeypatch):
    monkeypatch.setenv("KVSCOPE_ALLOW_SCRAPE", "gpu1, gpu2")

    assert allowed_hosts() == ("gpu1", "gpu2")


def test_localhost_resolves_with_ipv4_first():
    assert resolve("localhost", 8000)[0] == "127.0.0.1"


def test_a_look_up_that_hangs_ends_in_time():
    def hang(_host, _port):
        time.sleep(5)
        return []

    started = time.monotonic()
    with pytest.raises(TimeoutError):
        resolve_in_time("gpu1", 8000, 0.1, hang)

    assert time.monotonic() - started < 2


def test_a_failed_look_up_is_an_os_error():
    def fail(_host, _port):
        raise UnicodeError("label too long")

    with pytest.raises(OSError, match="label too long"):
        resolve_in_time("gpu1", 8000, 1, fail)
