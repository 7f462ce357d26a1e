"""A listener with TLS and SASL: a certificate that Java's keytool makes, one user, and what clients need."""

from __future__ import annotations

import subprocess
from pathlib import Path

from examples.kafka.broker import CannotStart, java

USER = "headrace"
PASSWORD = "s3cret-Value"
CERTIFICATE = "broker.pem"
_STORE = "a-store-of-the-test"


def listener(folder: Path) -> str:
    """The properties of the listener; none if there is no keytool."""
    try:
        keytool = Path(java()).with_name("keytool")
    except CannotStart:
        return ""
    if not keytool.exists():
        return ""
    store = folder / "broker.p12"
    known = ["-alias", "broker", "-keystore", str(store), "-storetype", "PKCS12", "-storepass", _STORE]
    name = ["-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1", "-ext", "bc:c"]
    for command in (
        ["-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "30", *name, *known],
        ["-exportcert", "-rfc", "-file", str(folder / CERTIFICATE), *known],
    ):
        subprocess.run([str(keytool), *command], check=True, capture_output=True, timeout=120)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    own = "listener.name.secure"
    return f"""
{own}.ssl.keystore.type=PKCS12
{own}.ssl.keystore.location={store}
{own}.ssl.keystore.password={_STORE}
{own}.ssl.key.password={_STORE}
{own}.sasl.enabled.mechanisms=PLAIN
{own}.plain.sasl.jaas.config={module} required user_{USER}="{PASSWORD}";
"""


def options(certificate: Path, password: str = "${PW}") -> str:
    """The options of a client, as a TOML table."""
    return f"""options = {{ "security.protocol" = "SASL_SSL", "ssl.ca.location" = "{certificate}",
        "sasl.mechanism" = "PLAIN", "sasl.username" = "{USER}", "sasl.password" = "{password}" }}""".replace(
        "\n       ", ""
    )
