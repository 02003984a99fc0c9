"""What an API replica is told."""

from dataclasses import dataclass

from infinity_pool.broker.settings import CommonSettings, option


@dataclass(frozen=True, kw_only=True)
class HttpSettings:
    """The HTTP side of an API replica."""

    host: str = option("Address to listen on.", default="127.0.0.1")
    port: int = option("Port to listen on; 0: any free one.", default=7997, minimum=0)
    api_key: str = option("Ask callers for this key, as a Bearer token.", default="", secret=True)
    timeout: float = option("Seconds a request may take in all.", default=60.0, minimum=0.001)
    online_max_items: int = option("Embedding requests of up to so many items go online.", default=8, minimum=0)
    max_items: int = option("Items in one request.", default=2048, minimum=1)
    max_body: int = option("Bytes in one request's body.", default=64 * 2**20, minimum=1)


@dataclass(frozen=True, kw_only=True)
class ApiSettings(HttpSettings, CommonSettings):
    """What one API process is told."""

    reuse_port: bool = option("Share the port with other replicas on this host.", default=False)
