//! Named, owned background tasks of the main thread. Dropping the set ends them.

use tokio::task::JoinSet;

/// A set of tasks with names. A task that ends by a panic is reported by its name.
#[derive(Debug, Default)]
pub struct Tasks {
    set: JoinSet<()>,
}

impl Tasks {
    /// Starts a task inside the current runtime.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.set.spawn(async move {
            let inner = tokio::spawn(task);
            let _ended_with_us = AbortOnDrop(inner.abort_handle());
            if inner.await.is_err_and(|error| error.is_panic()) {
                tracing::error!(task = name, "a background task failed");
            }
        });
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
