//! Commands that ask the running broker, over its control socket.

use freeboard_control::{Client, ClientError};

use super::{ConfigFlags, Exit, exit};

/// Calls `question` with a connection to the broker; whatever goes wrong is told.
pub(super) fn ask(
    config: &ConfigFlags,
    question: impl AsyncFnOnce(Client) -> Result<Exit, ClientError>,
) -> Exit {
    let config = match config.load(&[]) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report(Exit::System, &error),
    };
    let socket = config.control_socket.clone();
    let asked = runtime.block_on(async { question(Client::connect(&socket).await?).await });
    match asked {
        Ok(code) => code,
        Err(error @ ClientError::Refused { .. }) => exit::report(Exit::Problems, &error),
        Err(error) => {
            let code = exit::report(Exit::System, &error);
            exit::hint(&format!(
                "the broker listens at `{}`, for root, its own user and `control_uids`",
                socket.display()
            ));
            code
        }
    }
}
