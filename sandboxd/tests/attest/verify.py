"""Verifies an envelope with securesystemslib, which knows nothing of this project. Prints the subject's digest."""

import json
import sys

from cryptography.hazmat.primitives.serialization import load_pem_public_key
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey

envelope_file, key_file = sys.argv[1:]
with open(envelope_file, encoding="utf-8") as file:
    content = json.load(file)
with open(key_file, "rb") as file:
    key = SSlibKey.from_crypto(load_pem_public_key(file.read()), keyid=content["signatures"][0]["keyid"])
envelope = Envelope.from_dict(content)
envelope.verify([key], threshold=1)
statement = json.loads(envelope.payload)
assert envelope.payload_type == "application/vnd.in-toto+json"
assert statement["_type"] == "https://in-toto.io/Statement/v1"
print(statement["subject"][0]["digest"]["sha256"])
