#!/usr/bin/env bash
# dap-python raises on responses of the Debug Adapter Protocol that have nothing but success to tell.
#
# Version: dap-python 0.5.0 from PyPI, pydantic 2.14.4, CPython 3.11.
# Behaviour: the protocol's responses to launch, disconnect, pause and others are acknowledgements, whose body is optional.
# The client validates the body as if it were a whole response and raises ValidationError for "seq", "request_seq",
# "success" and "command", whether the adapter sends no body, or an empty one. The ids in a stopped event, numbers in the
# protocol, have to be strings. A script that uses it against any adapter has to catch the first and patch the second.
# Output seen: "launch: ValidationError; disconnect: ValidationError; hitBreakpointIds [1]: ValidationError".
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q dap-python==0.5.0 pydantic==2.14.4
cat > "$folder/check.py" <<'PYTHON'
import json

import dap
from pydantic import ValidationError


def told(client, message):
    """Return what the client makes of a message: the name of the error, or of what it yields."""
    content = json.dumps(message).encode()
    try:
        (found,) = client.receive(b"Content-Length: %d\r\n\r\n" % len(content) + content)
    except ValidationError as error:
        return type(error).__name__
    return type(found).__name__


client = dap.Client("any adapter")
found = {}
for command, body in (("launch", {}), ("disconnect", None)):
    number = client.send_request(command, {})
    message = {"seq": number, "type": "response", "request_seq": number, "success": True, "command": command}
    found[command] = told(client, message if body is None else {**message, "body": body})
stopped = {"reason": "breakpoint", "threadId": 1, "hitBreakpointIds": [1]}
found["hitBreakpointIds [1]"] = told(client, {"seq": 9, "type": "event", "event": "stopped", "body": stopped})
print("; ".join(f"{name}: {what}" for name, what in found.items()))
assert set(found.values()) == {"ValidationError"}
threads = client.send_request("threads")
body = {"threads": [{"id": 1, "name": "warp 0"}]}
response = {"seq": 10, "type": "response", "request_seq": threads, "success": True, "command": "threads", "body": body}
assert told(client, response) == "ThreadsResponse"
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
