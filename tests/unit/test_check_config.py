"""Where settings came from, and what is shown of them."""

from pathlib import Path

import pytest

from forgeflow.config import Config, effective, in_words, known_keys, read_config, secret_keys
from forgeflow.errors import ConfigError
from forgeflow.store.connection import shown_url

SECRET = "hunter2"


def test_reading_says_where_each_setting_came_from(tmp_path: Path) -> None:
    file, secret = tmp_path / "forgeflow.ini", tmp_path / "url"
    file.write_text("[worker]\nconcurrency = 3\nkill_grace = 3s\n")
    secret.write_text(f"postgresql://me:{SECRET}@db/forge\n")
    environ = {"FORGEFLOW_CONCURRENCY": "4", "FORGEFLOW_DATABASE_URL_FILE": str(secret)}
    reading = read_config(str(file), environ=environ)
    assert reading.file == file
    assert reading.config.worker.concurrency == 4
    assert {key: (given.text, given.origin) for key, given in reading.file_settings.items()} == {
        "worker.concurrency": ("3", str(file)),
        "worker.kill_grace": ("3s", str(file)),
    }
    assert {key: given.origin for key, given in reading.environment_settings.items()} == {
        "worker.concurrency": "FORGEFLOW_CONCURRENCY",
        "database.url": "FORGEFLOW_DATABASE_URL_FILE",
    }
    assert SECRET not in repr(reading)


def test_refusal_has_a_problem_for_each_wrong_key(tmp_path: Path) -> None:
    file = tmp_path / "forgeflow.ini"
    file.write_text("[worker]\nconcurency = 3\nkill_grace = 5\n")
    with pytest.raises(ConfigError) as refused:
        read_config(str(file), environ={"FORGEFLOW_LOG_LEVEL": "loud"})
    first, second, third = sorted(refused.value.problems)
    assert first.startswith(f"{file}: unknown key worker.concurency")
    assert second.startswith("log.level (FORGEFLOW_LOG_LEVEL)")
    assert third.startswith(f"worker.kill_grace ({file})")
    with pytest.raises(ConfigError) as refused:
        read_config("/dev/null", environ={"FORGEFLOW_LEASE_DURATION": "3s", "FORGEFLOW_HEARTBEAT_INTERVAL": "2s"})
    assert len(refused.value.problems) == 1
    with pytest.raises(ConfigError) as refused:
        read_config("/nowhere", environ={})
    assert refused.value.problems == (str(refused.value),)


def test_each_key_has_its_value_in_words_and_only_the_url_is_secret() -> None:
    for section, keys in known_keys().items():
        for key, default in keys.items():
            assert in_words(effective(Config(), f"{section}.{key}")) == in_words(default)
    assert secret_keys() == {"database.url"}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql://me:{SECRET}@db:5433/forge", "user=me dbname=forge host=db port=5433 password=***"),
        ("postgresql://me@db/forge?sslmode=require", "user=me dbname=forge host=db sslmode=require"),
        (f"postgresql://db/forge?user=me&password={SECRET}", "user=me dbname=forge host=db password=***"),
        (f"host=a,b user=me password='{SECRET} x'", "user=me host=a,b password=***"),
        (f"postgresql://db/x?sslpassword={SECRET}&passfile=/{SECRET}", "dbname=x host=db"),
        (f"postgresql://db/x?options=-c%20a.b%3D{SECRET}&application_name={SECRET}", "dbname=x host=db"),
        (f"postgresql://db/x?nope={SECRET}", "***"),
        (f"mysql://me:{SECRET}@db", "***"),
    ],
)
def test_address_of_the_database_is_shown_without_any_secret(url: str, shown: str) -> None:
    assert sorted(shown_url(url).split()) == sorted(shown.split())
