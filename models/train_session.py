"""Trains what the embedder says about prompts of a session, and fits the profile for sessions.

    python train_session.py DATA NEED PROFILE [--more FOLDER]

Reads the training prompts of `sessions`, real prompts with labels for three libraries of skills.
NEED is the embedder's need.json, whose part `session` is replaced: a logistic regression over the
vector and the form of a prompt says whether it can use any skill, and a bilinear model over the
vectors of a prompt and a skill says how much such prompts ask for it. PROFILE is written. Takes
some minutes, and needs crossgate installed, but not torch.

The probabilities are fitted on the prompts of `--more`, since the embedder has learnt the others.
Somebody chose those prompts, so each library's prompts with and without a fitting skill count as
often as in `sessions`.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from corpora import read_rows
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

from crossgate import Document, Index, OnnxEmbedder, _core
from crossgate._values.inputs import read_prompt
from crossgate._values.profile_files import read_profile, write_profile

Array = NDArray[np.float64]

CONVERSATION = Path(__file__).parent / "prompts" / "conversation.jsonl"
REQUESTS = 300
"""Number of requests of skill authors, and of remarks of our own, that the need is trained with.

The sessions are of programmers; without these, a plain request of other work would count as none.
"""

REPEATED = 3
"""How often a request of skill-triggers dev counts in the fit of the probability."""

LIBRARIES = ("specialists", "workflows", "everything")
MAY = 0.3
"""Weight of a skill that is arguably useful; that of one that an expert would open is 1."""

FOLDS = 5
RIDGE_VECTOR, RIDGE_FORM = 4e-4, 0.025
DIRECTIONS = 24
"""Number of principal components of prompts that the usefulness of a skill depends on."""

RIDGE_USEFULNESS, RIDGE_OF_PROMPT = 0.004, 0.02
"""Ridge of the part that is the same for every prompt, and of the part that depends on it."""

RANGE = (0.001, 0.999)
"""Quantiles of the usefulness of skills for prompts that become 0 and 1."""

LEAST_DOCUMENTS = 32
OTHER_TECHNOLOGY = -2.8
"""Log-odds of a skill for a technology that neither project nor prompt has.

Fitted together with the usefulness on the training prompts; experiments.md has the figures.
"""

NAMED = 0.6
"""Confidence from which a skill is named: more likely right than wrong, with a margin."""

LISTED = 0.62
"""Probability that any skill fits below which the shortlist is empty; the hook has its own rule."""

COVERAGE = 0.69
"""Probability of a must on a list: the most that lists of three reach on these prompts."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt of a session.

    Attributes:
        id: Its id.
        owner: The owner of the repository, for folds.
        split: `train`, `dev`, or `more` for prompts of further folders.
        vector: The unit vector of the request.
        form: The numbers of `_core.form`.
        searched: The text that is searched.
    """

    id: str
    owner: str
    split: str
    vector: Array
    form: Array
    searched: str


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of a prompt in one library.

    Attributes:
        prompt: Position of the prompt.
        log_weights: By the text, [n].
        vectors: Of the documents, [n, dimension].
        must: Whether an expert would open it, [n].
        fits: Whether it is at least arguably useful, [n].
        any_must: Whether any document of the library is a must.
        any_fits: Whether any document of the library is at least arguably useful.
        documents: Size of the library.
    """

    prompt: int
    log_weights: Array
    vectors: Array
    must: Array
    fits: Array
    any_must: bool
    any_fits: bool
    documents: int


def sessions_of(folders: Sequence[Path], embedder: OnnxEmbedder) -> list[Prompt]:
    """Returns the prompts of all folders with their vectors."""
    rows = [
        row | ({"split": "more"} if number else {})
        for number, folder in enumerate(folders)
        for row in read_rows(folder / "prompts.jsonl")
    ]
    return prompts_of(rows, embedder)


def prompts_of(rows: Sequence[dict[str, Any]], embedder: OnnxEmbedder) -> list[Prompt]:
    """Returns prompts with their vectors."""
    split = [read_prompt(row["text"][:65_536], None) for row in rows]
    requests = embedder.embed([prompt.request or " " for prompt in split])
    return [
        Prompt(
            id=row["id"],
            owner=row["repo"].split("/")[0].lower(),
            split=row["split"],
            vector=np.asarray(vector, float) / np.linalg.norm(vector),
            form=np.array(_core.form(prompt.request, prompt.text, row["position"] == 0)),
            searched=prompt.searched,
        )
        for row, prompt, vector in zip(rows, split, requests, strict=True)
    ]


def bodies_of(data: Path) -> dict[str, str]:
    """Returns the bodies of the skills of the public sets, by id."""
    return {
        row["_id"]: row["body"]
        for path in sorted((data / "skill-bodies").glob("*.jsonl"))
        for row in read_rows(path)
    }


def candidates_of(
    rows: Sequence[dict[str, Any]],
    bodies: dict[str, str],
    prompts: Sequence[Prompt],
    labels: dict[str, tuple[set[str], set[str]]],
    embedder: OnnxEmbedder,
) -> list[Candidates]:
    """Returns the candidates of all prompts in one library.

    Args:
        rows: The documents of the library.
        bodies: Their bodies, by id.
        prompts: The prompts.
        labels: By id of the prompt, the musts, and these with the arguably useful documents.
        embedder: The embedder.
    """
    profile = read_profile("default")
    model = profile.relevance.stage1
    assert model is not None
    index = Index.build(
        [
            Document(
                id=row["_id"],
                title=row["title"],
                text=row["text"],
                body=bodies.get(row["_id"], ""),
            )
            for row in rows
        ]
    )
    documents = {row["_id"]: np.asarray(index._core.vector(row["_id"])) for row in rows}
    vectors = embedder.embed([prompt.searched or " " for prompt in prompts])
    found = []
    for place, (prompt, vector) in enumerate(zip(prompts, vectors, strict=True)):
        scored = index.search(
            prompt.searched, vector, blend=profile.blend, evidence=profile.evidence
        ).scored
        must, fits = labels[prompt.id]
        weights = [
            model.cosine * (one.cosine or 0.0)
            + model.bm25 * one.bm25 / (one.bm25 + profile.blend.pivot)
            for one in scored
        ]
        found.append(
            Candidates(
                prompt=place,
                log_weights=np.array(weights),
                vectors=np.array([documents[one.id] for one in scored]),
                must=np.array([one.id in must for one in scored]),
                fits=np.array([one.id in fits for one in scored]),
                any_must=bool(must),
                any_fits=bool(fits),
                documents=len(rows),
            )
        )
    return found


def libraries_of(
    data: Path, folders: Sequence[Path], prompts: Sequence[Prompt], embedder: OnnxEmbedder
) -> Iterator[list[Candidates]]:
    """Yields the candidates of the prompts of sessions, library by library."""
    bodies = bodies_of(data)
    for name in LIBRARIES:
        rows = list(read_rows(data / "sessions" / "libraries" / f"{name}.jsonl"))
        labels = {
            row["id"]: (set(row["must"]), {*row["must"], *row["may"]})
            for folder in folders
            for row in read_rows(folder / "labels" / f"{name}.jsonl")
        }
        yield candidates_of(rows, bodies, prompts, labels, embedder)


def authors_requests(
    data: Path, split: str, count: int, embedder: OnnxEmbedder
) -> tuple[list[Prompt], dict[str, tuple[set[str], set[str]]]]:
    """Returns prompts of skill-triggers that have a match and do not name it, with their labels."""
    folder = data / "skill-triggers"
    labels: dict[str, tuple[set[str], set[str]]] = {}
    for line in (folder / "qrels" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, *_ = line.split("\t")
        for of in labels.setdefault(query, (set(), set())):
            of.add(document)
    rows = [
        {"id": row["_id"], "repo": "/", "split": "requests", "position": 1, "text": row["text"]}
        for row in read_rows(folder / "queries.jsonl")
        if row["_id"] in labels and not row["metadata"].get("mentions_name")
    ]
    rows.sort(key=lambda row: hashlib.sha256(str(row["id"]).encode()).hexdigest())
    return prompts_of(rows[:count], embedder), labels


def minimum(loss: Callable[[Array], tuple[float, Array]], size: int) -> Array:
    """Returns the weights with the least loss, from zeros."""
    return np.asarray(minimize(loss, np.zeros(size), jac=True, method="L-BFGS-B").x)


def logistic(features: Array, labels: Array, ridge: Array, counts: Array | None = None) -> Array:
    """Returns intercept and weights of a logistic regression with a ridge for each weight.

    `counts` says how much each row counts; all count alike by default.
    """
    share = np.ones(len(labels)) if counts is None else counts
    share = share / share.sum()

    def loss(weights: Array) -> tuple[float, Array]:
        odds = weights[0] + features @ weights[1:]
        error = (expit(odds) - labels) * share
        value = (np.logaddexp(0, odds) - labels * odds) @ share + ridge @ weights[1:] ** 2
        return float(value), np.concatenate(
            [[error.sum()], features.T @ error + 2 * ridge * weights[1:]]
        )

    return minimum(loss, features.shape[1] + 1)


def fit_need(
    prompts: Sequence[Prompt],
    must: Array,
    fits: Array,
    others: Sequence[tuple[Sequence[Prompt], bool]],
    of_requests: Array,
) -> tuple[float, Array, Array]:
    """Returns intercept, weights of the vector, and weights of the form.

    A prompt counts twice, once for whether any skill is a must and once for whether any is at least
    arguably useful, so that a must has twice the weight. `others` are further prompts, each group
    with whether it needs a skill. The head of requests, `of_requests` [dimension], is a feature
    without a ridge, since the sessions are of programmers, and requests can be about any work.
    """
    asks = np.concatenate([np.full(len(group), float(needs)) for group, needs in others])
    must, fits = np.concatenate([must, asks]), np.concatenate([fits, asks])
    prompts = [*prompts, *(prompt for group, _ in others for prompt in group)]
    vectors = np.array([prompt.vector for prompt in prompts])
    form = np.array([prompt.form for prompt in prompts])
    mean, deviation = form.mean(0), form.std(0)
    requests = vectors @ of_requests
    scale = requests.std()
    features = np.hstack([vectors, (form - mean) / deviation, requests[:, None] / scale])
    ridge = np.repeat([RIDGE_VECTOR, RIDGE_FORM, 0.0], [vectors.shape[1], form.shape[1], 1])
    weights = logistic(np.vstack([features] * 2), np.concatenate([must, fits]), ridge)
    of_form = weights[1 + vectors.shape[1] : -1] / deviation
    of_vector = weights[1 : 1 + vectors.shape[1]] + weights[-1] / scale * of_requests
    return float(weights[0] - of_form @ mean), of_vector, of_form


def fit_usefulness(
    prompts: Sequence[Prompt], libraries: Sequence[Sequence[Candidates]], chosen: Sequence[int]
) -> Array:
    """Returns the model of the usefulness of a document for a prompt, [rows, dimension].

    The first row holds the weights of a document's vector that count for every prompt. To these are
    added each number of the prompt's form times one of the next rows, and each product of its
    vector with one of `DIRECTIONS` further rows times one of as many last rows. What a document
    gets is added to its log-weight. The loss of a library is the mean cross-entropy of picking a
    fitting candidate; a prompt without a must has less than a third of the weight.

    Args:
        prompts: All prompts.
        libraries: Their candidates, library by library.
        chosen: Positions of the prompts to fit.
    """
    vectors = np.array([prompts[at].vector for at in chosen])
    _, _, components = np.linalg.svd(vectors - vectors.mean(0), full_matrices=False)
    directions = components[:DIRECTIONS]
    numbers = np.hstack([np.array([prompts[at].form for at in chosen]), vectors @ directions.T])
    mean, deviation = numbers.mean(0), numbers.std(0)
    of_prompt = dict(zip(chosen, (numbers - mean) / deviation, strict=True))
    groups = []
    for library in libraries:
        known = [library[at] for at in chosen if library[at].fits.any()]
        total = sum(0.3 + 0.7 * one.any_must for one in known)
        groups += [(one, (0.3 + 0.7 * one.any_must) / total) for one in known]
    shape = (1 + len(mean), vectors.shape[1])
    ridge = np.repeat([RIDGE_USEFULNESS, RIDGE_OF_PROMPT], [1, len(mean)])[:, None]

    def loss(flat: Array) -> tuple[float, Array]:
        weights = flat.reshape(shape)
        value, slope = float((ridge * weights**2).sum()), 2 * ridge * weights
        for one, weight in groups:
            features = np.concatenate([[1.0], of_prompt[one.prompt]])
            scores = one.log_weights + one.vectors @ (features @ weights)
            target = np.where(one.must, 1.0, MAY * one.fits)
            target = target / target.sum()
            value += weight * (logsumexp(scores) - target @ scores)
            shares = np.exp(scores - logsumexp(scores))
            slope += weight * np.outer(features, (shares - target) @ one.vectors)
        return value, slope.ravel()

    weights = minimum(loss, shape[0] * shape[1]).reshape(shape)
    of_form, of_vector = np.split(weights[1:] / deviation[:, None], [len(mean) - DIRECTIONS])
    same = weights[0] - mean @ (weights[1:] / deviation[:, None])
    return np.vstack([same, of_form, directions, of_vector])


def weights_for(model: Array, prompt: Prompt) -> Array:
    """Returns the weights [dimension] of the usefulness of a document for a prompt."""
    of_form, directions, of_vector = np.split(model[1:], [len(prompt.form), -DIRECTIONS])
    return np.asarray(model[0] + prompt.form @ of_form + (directions @ prompt.vector) @ of_vector)


@dataclass(frozen=True, slots=True)
class Heads:
    """The models of need and of usefulness, the latter in log-odds from `least` to `most`."""

    need: tuple[float, Array, Array]
    usefulness: Array
    least: float
    most: float

    def need_of(self, prompt: Prompt) -> float:
        """Returns the log-odds that a prompt needs any skill."""
        intercept, of_vector, of_form = self.need
        return float(intercept + prompt.vector @ of_vector + prompt.form @ of_form)

    def added(self, one: Candidates, prompt: Prompt) -> Array:
        """Returns what usefulness adds to each candidate's log-weight."""
        value = one.vectors @ weights_for(self.usefulness, prompt)
        return np.asarray(value.clip(self.least, self.most))


def fit_heads(
    prompts: Sequence[Prompt],
    libraries: Sequence[Sequence[Candidates]],
    chosen: set[int],
    others: Sequence[tuple[Sequence[Prompt], bool]],
    of_requests: Array,
) -> Heads:
    """Returns the heads, fitted to the prompts at the chosen positions."""
    order = sorted(chosen)
    must = np.array([any(library[at].any_must for library in libraries) for at in order])
    fits = np.array([any(library[at].any_fits for library in libraries) for at in order])
    need = fit_need([prompts[at] for at in order], must, fits, others, of_requests)
    model = fit_usefulness(prompts, libraries, order)
    every = [
        library[at].vectors @ weights_for(model, prompts[at])
        for library in libraries
        for at in order
    ]
    least, most = np.quantile(np.concatenate(every), RANGE)
    return Heads(need, model, float(least), float(most))


@dataclass(frozen=True, slots=True)
class Outcome:
    """One prompt in one library, by heads that have not seen its owner.

    Attributes:
        split: That of the prompt.
        library: Position of the library.
        signals: The logarithm of the mean weight, usefulness included, and the log-odds of a need.
        share: The share of the first candidate.
        first_fits: Whether it is at least arguably useful.
        first_must: Whether it is a must.
        any_fits: Whether any document is at least arguably useful.
        any_must: Whether any document is a must.
        rank: Rank of the first must, from 1; 0 if none was found.
        rank_share: Its share.
    """

    split: str
    library: int
    signals: tuple[float, float]
    share: float
    first_fits: bool
    first_must: bool
    any_fits: bool
    any_must: bool
    rank: int
    rank_share: float


def outcomes_of(
    prompts: Sequence[Prompt],
    libraries: Sequence[Sequence[Candidates]],
    heads_of: Callable[[int], Heads],
) -> list[Outcome]:
    """Returns the outcome of each prompt in each library."""
    found = []
    for number, library in enumerate(libraries):
        for one in library:
            if not len(one.log_weights):
                continue
            heads, prompt = heads_of(one.prompt), prompts[one.prompt]
            scores = one.log_weights + heads.added(one, prompt)
            shares = np.exp(scores - logsumexp(scores))
            order = np.argsort(-scores, kind="stable")
            right = [rank for rank, at in enumerate(order, start=1) if one.must[at]]
            # The core counts usefulness from 0.
            mean = logsumexp(scores - heads.least) - np.log(max(one.documents, LEAST_DOCUMENTS))
            found.append(
                Outcome(
                    split=prompt.split,
                    library=number,
                    signals=(float(mean), heads.need_of(prompt)),
                    share=float(shares[order[0]]),
                    first_fits=bool(one.fits[order[0]]),
                    first_must=bool(one.must[order[0]]),
                    any_fits=one.any_fits,
                    any_must=one.any_must,
                    rank=right[0] if right else 0,
                    rank_share=float(shares[order[right[0] - 1]]) if right else 0.0,
                )
            )
    return found


def natural_counts(chosen: Sequence[Outcome], natural: Sequence[Outcome]) -> Array:
    """Returns how much each chosen outcome counts, so that as many have a fit as in `natural`."""

    def shares(outcomes: Sequence[Outcome]) -> dict[tuple[int, bool], float]:
        keys = [(one.library, one.any_fits) for one in outcomes]
        return {key: keys.count(key) / len(keys) for key in set(keys)}

    wanted, found = shares(natural), shares(chosen)
    return np.array(
        [wanted[one.library, one.any_fits] / found[one.library, one.any_fits] for one in chosen]
    )


def report(outcomes: Sequence[Outcome], any_fits: Array, threshold: float) -> dict[str, object]:
    """Returns what a hook would do on these outcomes with a threshold."""
    confidence = any_fits * np.array([one.share for one in outcomes])
    named = confidence >= threshold
    fits = np.array([one.first_fits for one in outcomes])
    must = np.array([one.first_must for one in outcomes])
    needed = np.array([one.any_must for one in outcomes])
    useful = np.array([one.any_fits for one in outcomes])

    def error(probability: Array, right: Array) -> float:
        bins = np.minimum((probability * 10).astype(int), 9)
        gaps = [
            abs(probability[bins == each].mean() - right[bins == each].mean())
            * (bins == each).mean()
            for each in np.unique(bins)
        ]
        return round(float(sum(gaps)), 3)

    return {
        "prompts": len(outcomes),
        "must_first": round(float(must[needed].mean()), 3),
        "must_in_five": round(
            float(np.mean([0 < one.rank <= 5 for one in outcomes if one.any_must])), 3
        ),
        "named": int(named.sum()),
        "named_right": round(float(fits[named].mean()), 3),
        "named_must": round(float(must[named].mean()), 3),
        "musts_named": round(float((must & named).sum() / needed.sum()), 3),
        "needless": round(float((named & ~useful).sum() / max(1, (~useful).sum())), 4),
        "calibration_error": [error(confidence, fits), error(any_fits, useful)],
    }


def main() -> None:
    """Reads the arguments, trains, fits and writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of the public sets")
    parser.add_argument(
        "need", type=Path, help="need.json of the embedder; its session is replaced"
    )
    parser.add_argument("profile", type=Path, help="file to write, session.json")
    parser.add_argument("--more", type=Path, help="folder of further prompts in the same format")
    options = parser.parse_args()

    embedder = OnnxEmbedder()
    folders = [options.data / "sessions", *([options.more] if options.more else [])]
    prompts = sessions_of(folders, embedder)
    libraries = list(libraries_of(options.data, folders, prompts, embedder))
    requests, _ = authors_requests(options.data, "train", REQUESTS, embedder)
    remarks = [
        {"id": "", "repo": "/", "split": "", "position": 1, "text": row["text"]}
        for row in read_rows(CONVERSATION)
        if not row["asks"]
    ]
    values = json.loads(options.need.read_text(encoding="utf-8"))
    request = values.get("request", {name: values.get(name) for name in ("intercept", "weights")})
    of_requests = np.array(request["weights"])
    others = [(requests, True), (prompts_of(remarks[:REQUESTS], embedder), False)]
    train = [at for at, prompt in enumerate(prompts) if prompt.split != "dev"]
    owners = sorted({prompts[at].owner for at in train})
    fold = {owner: number % FOLDS for number, owner in enumerate(owners)}
    heads = fit_heads(prompts, libraries, set(train), others, of_requests)
    by_fold = [
        fit_heads(
            prompts,
            libraries,
            {at for at in train if fold[prompts[at].owner] != number},
            others,
            of_requests,
        )
        for number in range(FOLDS)
    ]

    def heads_of(place: int) -> Heads:
        prompt = prompts[place]
        return heads if prompt.split == "dev" else by_fold[fold[prompt.owner]]

    outcomes = outcomes_of(prompts, libraries, heads_of)
    learnt = [one for one in outcomes if one.split == "train"]
    known = [one for one in outcomes if one.split == "more"] or learnt
    asked, of_asked = authors_requests(options.data, "dev", 300, embedder)
    rows = list(read_rows(options.data / "skill-triggers" / "corpus.jsonl"))
    bodies = bodies_of(options.data)
    matched = outcomes_of(
        asked, [candidates_of(rows, bodies, asked, of_asked, embedder)], lambda _: heads
    )
    fitted = [*known, *matched * REPEATED]
    weights = logistic(
        np.array([one.signals for one in fitted]),
        np.array([float(one.any_fits) for one in fitted]),
        np.zeros(2),
        np.concatenate([natural_counts(known, learnt), np.ones(len(matched) * REPEATED)]),
    )

    def any_fits(of: Sequence[Outcome]) -> Array:
        return np.asarray(expit(weights[0] + np.array([one.signals for one in of]) @ weights[1:]))

    promises = _core.fit_shortlist(
        [(one.rank, one.rank_share) if one.rank else None for one in known if one.any_must]
    )
    default = read_profile("default")
    usefulness = heads.most - heads.least
    stage1 = _core.Stage1AnyFits(
        intercept=round(float(weights[0]), 5),
        log_mean=round(float(weights[1]), 5),
        need=round(float(weights[2]), 5),
    )
    dev = [one for one in outcomes if one.split == "dev"]
    figures = {
        split: report(of, any_fits(of), NAMED)
        for split, of in (("folds", known), ("dev", dev), ("requests", matched))
    }
    profile = default.replace(
        name="session",
        session=True,
        reranker=None,
        evidence=default.evidence.replace(
            usefulness=round(usefulness, 4), other_technology=OTHER_TECHNOLOGY
        ),
        any_fits=_core.AnyFits(stage1=stage1),
        # The confidence is never above `any_fits`, so stage 2 could not help below this.
        answer=_core.Answer(rerank_threshold=NAMED, confidence=NAMED),
        winner=_core.Winner(agreed=0.0, disagreed=0.0),
        relevance=_core.Relevance(stage1=default.relevance.stage1),
        anytime=None,
        shortlist=_core.Shortlist(least=LISTED, coverage=COVERAGE, most=3, stage1=promises),
        fitted={
            "command": "python train_session.py DATA need.json session.json --more FOLDER",
            "prompts": len(train),
            "owners": len(owners),
            **figures,
        },
    )
    write_profile(options.profile, profile)
    intercept, of_vector, of_form = heads.need
    model = heads.usefulness / usefulness
    # The directions of prompts have length 1; the rows that they are multiplied with are scaled.
    model[-2 * DIRECTIONS : -DIRECTIONS] *= usefulness
    numbers = values | {
        "schema": "crossgate-need/3",
        "request": request,
        "session": {
            "intercept": round(intercept, 5),
            "weights": [round(float(weight), 5) for weight in of_vector],
            "form": [round(float(weight), 5) for weight in of_form],
            "usefulness": {
                "intercept": round(-heads.least / usefulness, 5),
                "model": base64.b64encode(model.astype("<f4").tobytes()).decode("ascii"),
            },
        },
    }
    options.need.write_text(json.dumps(numbers) + "\n", encoding="utf-8")
    print(json.dumps({"any_fits": weights.round(4).tolist(), **figures}))


if __name__ == "__main__":
    main()
