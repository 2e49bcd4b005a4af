"""`check-config`, `doctor` and `ping` as a user has them, on a real PostgreSQL."""

import pytest

TO_DO = pytest.mark.xfail(reason="not built yet", raises=NotImplementedError)


@TO_DO
def test_check_config_tells_file_environment_and_what_differs() -> None:
    raise NotImplementedError


@TO_DO
def test_check_config_as_json() -> None:
    raise NotImplementedError


@TO_DO
def test_check_config_never_shows_a_password() -> None:
    raise NotImplementedError


@TO_DO
def test_check_config_tells_each_wrong_key_on_its_own_line() -> None:
    raise NotImplementedError


@TO_DO
def test_check_config_refuses_what_a_node_refuses() -> None:
    raise NotImplementedError


@TO_DO
def test_check_config_touches_no_database() -> None:
    raise NotImplementedError


@TO_DO
def test_doctor_finds_nothing_wrong_with_a_migrated_database() -> None:
    raise NotImplementedError


@TO_DO
def test_doctor_changes_nothing() -> None:
    raise NotImplementedError


@TO_DO
def test_doctor_as_json() -> None:
    raise NotImplementedError


@TO_DO
def test_doctor_of_an_unmigrated_database_names_the_cure() -> None:
    raise NotImplementedError


@TO_DO
def test_doctor_of_a_newer_schema_fails() -> None:
    raise NotImplementedError


@TO_DO
def test_doctor_of_an_unreachable_database_is_69_and_makes_the_other_checks() -> None:
    raise NotImplementedError


@TO_DO
def test_doctor_of_an_invalid_configuration_is_78_and_makes_the_other_checks() -> None:
    raise NotImplementedError


@TO_DO
def test_doctor_of_a_role_with_too_few_connections_fails() -> None:
    raise NotImplementedError


@TO_DO
def test_doctor_of_a_locked_table_ends_in_time() -> None:
    raise NotImplementedError


@TO_DO
def test_ping_of_nobody_is_1() -> None:
    raise NotImplementedError


@TO_DO
def test_ping_finds_a_node_by_configuration_host_and_option() -> None:
    raise NotImplementedError


@TO_DO
def test_ping_of_a_passed_lease_is_1() -> None:
    raise NotImplementedError


@TO_DO
def test_ping_of_an_unreachable_database_is_69() -> None:
    raise NotImplementedError


@TO_DO
def test_ping_of_an_unmigrated_database_is_4() -> None:
    raise NotImplementedError


@TO_DO
def test_ping_with_a_wrong_timeout_is_2() -> None:
    raise NotImplementedError
