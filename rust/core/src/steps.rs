//! Counts the steps of searches in tests, which show that twice the text takes twice the work.

#[cfg(not(test))]
pub(crate) fn steps(_: usize) {}

#[cfg(test)]
pub(crate) use counting::{assert_linear, steps};

/// Counts a step, such as a word that is looked at.
pub(crate) fn step() {
    steps(1);
}

#[cfg(test)]
mod counting {
    use std::cell::Cell;

    thread_local! {
        static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    /// Counts steps, such as the characters that a search reads.
    pub(crate) fn steps(count: usize) {
        STEPS.set(STEPS.get() + count);
    }

    /// Asserts that reading a piece twice as often takes at most three times the steps.
    pub(crate) fn assert_linear<T>(piece: &str, read: impl Fn(&str) -> T) {
        let steps = |count: usize| {
            STEPS.set(0);
            read(&piece.repeat(count));
            STEPS.get()
        };
        let (once, twice) = (steps(500), steps(1000));
        assert!(once > 0 && twice <= 3 * once, "{piece:?}: {once} and {twice} steps");
    }
}
