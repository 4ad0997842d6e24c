//! The smoke test: a real run that tries forbidden things. A provider that lets one through does not serve.

use std::time::Duration;

use crate::provider::native::smoke::try_forbidden;
use crate::provider::{CreateError, Provider};

/// Ends with the number of what worked and must not. Only what a shell has built in, so that it works in any root.
const SCRIPT: &str = "\
(: > /usr/.freeboard-smoke) 2>/dev/null && exit 11
(: > /etc/.freeboard-smoke) 2>/dev/null && exit 12
(: < /proc/1/mem) 2>/dev/null && exit 13
(: > /proc/sys/kernel/hostname) 2>/dev/null && exit 14
(: > /run/freeboard-guest) 2>/dev/null && exit 15
for place in /root/.* /root/* /home/*; do
  case $place in */.|*/..|*'*'*) ;; *) exit 16 ;; esac
done
kill -9 1 2>/dev/null
for process in /proc/[0-9]*; do
  case $process in /proc/1|/proc/$$) ;; *) exit 18 ;; esac
done
while read -r name rest; do
  case $name in lo:*|Inter-*|face*) ;; *) exit 19 ;; esac
done < /proc/net/dev
: > /work/.freeboard-smoke || exit 17
echo fenced
";

/// How long the test may take: it takes half a second on an idle machine.
const LIMIT: Duration = Duration::from_secs(30);

pub(super) async fn smoke_test(provider: &dyn Provider) -> Result<(), CreateError> {
    try_forbidden(provider, SCRIPT, LIMIT).await
}
