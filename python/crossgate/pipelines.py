"""Fusion, decay, diversity, steps after the reranker, and two recipes that combine them.

from crossgate.pipelines import agent_memory, from_index

result = agent_memory(query, from_index(index), now=now)
"""

from crossgate._pipelines.diversity import deduplicate, diversify
from crossgate._pipelines.fusion import (
    CrossEncoderFusion,
    Fusion,
    Normalisation,
    RRFReranker,
    ScoreFusion,
    fuse_scores,
    reciprocal_rank,
)
from crossgate._pipelines.hits import decay
from crossgate._pipelines.postprocessing import (
    Step,
    diversify_sources,
    keep_survivors,
    postprocess,
    prefer_sources,
    readmit_recovered,
    spread_documents,
)
from crossgate._pipelines.recipes import (
    AGREEMENT,
    Retrieve,
    Switches,
    agent_memory,
    context_engine,
    diversified,
    from_index,
    fused,
)

__all__ = [
    "AGREEMENT",
    "CrossEncoderFusion",
    "Fusion",
    "Normalisation",
    "RRFReranker",
    "Retrieve",
    "ScoreFusion",
    "Step",
    "Switches",
    "agent_memory",
    "context_engine",
    "decay",
    "deduplicate",
    "diversified",
    "diversify",
    "diversify_sources",
    "from_index",
    "fuse_scores",
    "fused",
    "keep_survivors",
    "postprocess",
    "prefer_sources",
    "readmit_recovered",
    "reciprocal_rank",
    "spread_documents",
]
