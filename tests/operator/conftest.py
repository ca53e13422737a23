"""Whatever several of the operator's tests need."""

from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from distserve_testing.deployments import strict_schema


@pytest.fixture(scope="session")
def check_schema() -> Callable[[dict[str, Any]], None]:
    """Raises when a resource does not fit its schema."""
    validator = jsonschema.Draft202012Validator(strict_schema())
    return validator.validate
