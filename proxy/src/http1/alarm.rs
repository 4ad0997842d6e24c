//! The deadline of one direction of a stream, in a timer that is seldom moved.
//!
//! A timer per read and write costs more than the read: each is put into the runtime's wheel and taken out again, and one that
//! is due before all others wakes the runtime by a system call of its own. Here one timer stays in the wheel. It is moved when
//! it would ring too late; when it rings too early it is set anew.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// How long an operation may wait.
#[derive(Debug, Clone, Copy)]
pub enum Patience {
    /// From its first wait on. What need not wait never looks at the clock.
    For(Duration),
    Until(Instant),
    /// Somebody else watches the time.
    Endless,
}

impl Patience {
    /// The same for all waits from here on, not for each.
    pub(super) fn fixed(self) -> Self {
        match self {
            Self::For(duration) => Self::Until(Instant::now() + duration),
            other => other,
        }
    }
}

/// The deadline of one operation, known once it has to wait.
#[derive(Debug)]
pub(super) struct Deadline {
    patience: Patience,
    until: Option<Instant>,
}

impl From<Patience> for Deadline {
    fn from(patience: Patience) -> Self {
        Self { patience, until: None }
    }
}

impl Deadline {
    /// When it is over; `None` is never.
    fn instant(&mut self) -> Option<Instant> {
        match self.patience {
            Patience::For(duration) => Some(*self.until.get_or_insert_with(|| Instant::now() + duration)),
            Patience::Until(instant) => Some(instant),
            Patience::Endless => None,
        }
    }
}

/// One timer, made when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Ready once the deadline is over. Until then the task is woken no later than that, and at times earlier.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, deadline: &mut Deadline) -> Poll<()> {
        let Some(deadline) = deadline.instant() else { return Poll::Pending };
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline || sleep.is_elapsed() {
            sleep.as_mut().reset(deadline);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn ring(alarm: &mut Alarm, patience: Patience) -> Duration {
        let (begin, mut deadline) = (Instant::now(), Deadline::from(patience));
        poll_fn(|cx| alarm.poll(cx, &mut deadline)).await;
        begin.elapsed()
    }

    #[tokio::test]
    async fn rings_neither_early_nor_late_whatever_was_asked_before() {
        let ms = Duration::from_millis;
        let mut alarm = Alarm::default();
        let mut waiting = Context::from_waker(std::task::Waker::noop());
        for (before, wanted) in [(500, 20), (5, 40), (30, 30)] {
            // A wait that ended otherwise leaves its timer behind.
            assert!(alarm.poll(&mut waiting, &mut Patience::For(ms(before)).into()).is_pending());
            let took = ring(&mut alarm, Patience::For(ms(wanted))).await;
            assert!(took >= ms(wanted) && took < ms(wanted) + ms(300), "{wanted}: {took:?}");
        }
        assert!(alarm.poll(&mut waiting, &mut Patience::Endless.into()).is_pending());
    }
}
