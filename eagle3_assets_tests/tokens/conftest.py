import pytest

from eagle3_assets.tokens.context import Context, PromptIndex
from eagle3_assets.tokens.profile import TargetProfile, Tokenizer, resolve_profile
from eagle3_assets_tests.tokens import kimi


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    directory = tmp_path_factory.mktemp("kimi")
    kimi.save_tokenizer(directory)
    return kimi.load_tokenizer(directory)


@pytest.fixture(scope="session")
def profile(tokenizer: Tokenizer) -> TargetProfile:
    return resolve_profile(tokenizer, vocab_size=kimi.VOCAB_SIZE, stop_token_ids=[kimi.IM_END, kimi.EOS])


@pytest.fixture
def context(tokenizer: Tokenizer, profile: TargetProfile) -> Context:
    """One row of many may be quarantined without refusing the partition."""
    return Context(
        profile,
        stop_token_ids=frozenset({kimi.IM_END, kimi.EOS}),
        quarantine_limit=0.1,
        tokenizer=tokenizer,
        current_prompts=PromptIndex.of([kimi.prompts()]),
        rerendered_prompts=kimi.prompts(),
        declared_tools=dict.fromkeys(kimi.genuine(), (kimi.TOOL,)),
    )
