"""LlamaIndex: a node postprocessor that keeps the nodes that fit."""

from __future__ import annotations

from typing import Any

from llama_index.core.bridge.pydantic import Field
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from crossgate.integrations._selection import REASON, Selected, aselect, select

__all__ = ["CrossgatePostprocessor"]


class CrossgatePostprocessor(BaseNodePostprocessor):
    """Keeps the nodes that fit the query, best first, or none of them.

    A node is read with the metadata that LlamaIndex embeds. A kept node is a copy; its score is
    its relevance, and its metadata also has `crossgate_reason`, which is hidden from models.

    Attributes:
        top_n: Maximum number to keep; None for all that fit.
        reranker: As in `crossgate.rerank`.
        profile: As in `crossgate.rerank`.
        policy: As in `crossgate.rerank`.
    """

    top_n: int | None = Field(default=None, ge=1)
    reranker: Any = "default"
    profile: Any = None
    policy: Any = None

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex stores it."""
        return "CrossgatePostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query = _query(query_bundle)
        return _kept(nodes, select(query, _texts(nodes), self.top_n, self._options()))

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query = _query(query_bundle)
        return _kept(nodes, await aselect(query, _texts(nodes), self.top_n, self._options()))

    def _options(self) -> dict[str, Any]:
        return {"reranker": self.reranker, "profile": self.profile, "policy": self.policy}


def _query(bundle: QueryBundle | None) -> str:
    if bundle is None:
        raise ValueError("Missing query bundle: pass query_str or query_bundle.")
    return bundle.query_str


def _texts(nodes: list[NodeWithScore]) -> list[str | None]:
    return [scored.node.get_content(metadata_mode=MetadataMode.EMBED) for scored in nodes]


def _kept(nodes: list[NodeWithScore], chosen: Selected) -> list[NodeWithScore]:
    kept = []
    for index, relevance, reason in chosen:
        node = nodes[index].node
        changed = {
            "metadata": {**node.metadata, REASON: reason},
            "excluded_embed_metadata_keys": [*node.excluded_embed_metadata_keys, REASON],
            "excluded_llm_metadata_keys": [*node.excluded_llm_metadata_keys, REASON],
        }
        kept.append(NodeWithScore(node=node.model_copy(update=changed), score=relevance))
    return kept
