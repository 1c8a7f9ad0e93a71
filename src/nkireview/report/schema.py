"""The JSON Schemas of review.json and of a profile: made from the records, committed beside this module."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from nkireview.record import SCHEMA, ReviewRecord
from nkireview.report.profile_record import VERSION, ProfileRecord

FILE = Path(__file__).parent / "schemas" / "review.schema.json"
PROFILE_FILE = FILE.with_name("profile.schema.json")


class _Generate(GenerateJsonSchema):
    """Figures that are not finite are written as strings, as JSON has no number for them."""

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        made = super().float_schema(schema)
        if set(made) != {"type"}:
            return made
        return {"anyOf": [made, {"enum": ["NaN", "Infinity", "-Infinity"]}]}


def review_schema() -> str:
    """The schema of a review as JSON text."""
    made = ReviewRecord.model_json_schema(mode="serialization", schema_generator=_Generate)
    head = {"$schema": _Generate.schema_dialect, "$id": f"urn:nkireview:review:{SCHEMA}"}
    return json.dumps({**head, **made}, indent=2, ensure_ascii=True) + "\n"


def profile_schema() -> str:
    """The schema of a profile as JSON text."""
    made = ProfileRecord.model_json_schema(mode="serialization", schema_generator=_Generate)
    head = {"$schema": _Generate.schema_dialect, "$id": f"urn:nkireview:profile:{VERSION}"}
    return json.dumps({**head, **made}, indent=2, ensure_ascii=True) + "\n"


if __name__ == "__main__":
    FILE.write_text(review_schema(), encoding="utf-8")
    PROFILE_FILE.write_text(profile_schema(), encoding="utf-8")
