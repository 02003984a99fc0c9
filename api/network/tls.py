"""TLS: a server's certificate, which is taken anew when its files change, and whom a client trusts."""

import asyncio
import logging
import os
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from infinity_pool.broker.errors import InvalidInput

PASSWORD_VARIABLE = "INFINITY_TLS_KEY_PASSWORD"  # noqa: S105 - where it is, not what
"""The variable that holds the key's password, which no command line should."""

_LOOK = 1.0  # s between two looks at the files

_REASONS = {
    "KEY_VALUES_MISMATCH": "the key is not the certificate's",
    "": f"no PEM of its kind, or a key whose password is not in {PASSWORD_VARIABLE}",
}
"""What OpenSSL's words mean here; it has none where a file has not what is looked for."""

logger = logging.getLogger(__name__)


class Certificate:
    """
    A server's certificate and key, in PEM; `key` is in the same file if it is empty.

    Raises InvalidInput, naming the file, if connections cannot be made with them.
    """

    def __init__(self, certificate: str, key: str = "") -> None:
        self._certificate, self._key = certificate, key or certificate
        self._seen = self._stamps()
        self.context = self._load(_server_context())

    def renew(self) -> None:
        """Take the files anew, for connections to come; where they are wrong, what was there stays."""
        self._seen = self._stamps()
        try:
            self._load(_server_context())  # apart first: half of a pair would spoil what is in use
            self._load(self.context)
        except InvalidInput as error:
            logger.error("the certificate stays as it was, since %s", error)
        else:
            logger.info("the certificate of %s is taken anew", self._certificate)

    async def follow(self) -> None:
        """Take the files anew whenever they change."""
        while True:
            await asyncio.sleep(_LOOK)
            if self._stamps() != self._seen:
                self.renew()

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        try:
            context.load_cert_chain(self._certificate, self._key, lambda: os.environ.get(PASSWORD_VARIABLE, ""))
        except OSError as error:  # of which SSLError is one
            files = " and ".join(dict.fromkeys((self._certificate, self._key)))
            raise InvalidInput(f"{files} cannot be used for TLS: {_why(error)}", param="tls_cert") from error
        return context

    def _stamps(self) -> list[tuple[int, int] | None]:
        return [_stamp(Path(file)) for file in (self._certificate, self._key)]


@asynccontextmanager
async def kept_up(certificate: Certificate | None) -> AsyncIterator[None]:
    """Take a certificate anew when its files change, and at SIGHUP."""
    if certificate is None:
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, certificate.renew)
    following = asyncio.create_task(certificate.follow(), name="certificate")
    try:
        yield
    finally:
        following.cancel()
        loop.remove_signal_handler(signal.SIGHUP)


def client_context(verify: bool | str = True) -> ssl.SSLContext:
    """
    Give what a client checks servers with: the authorities that the system trusts, those of a file, or none (False).

    Raises InvalidInput, naming the file, if it holds no certificates.
    """
    try:
        context = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
    except OSError as error:
        raise InvalidInput(f"{verify} holds no certificates to trust: {error}", param="verify") from error
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        reason: str | None = error.reason
        return _REASONS.get(reason or "", str(reason))
    return error.strerror or str(error)


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
