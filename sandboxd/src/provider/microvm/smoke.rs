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
for place in /root/.* /root/* /home/*; do
  case $place in */.|*/..|*'*'*) ;; *) exit 16 ;; esac
done
kill -9 1 2>/dev/null
while read -r name rest; do
  case $name in lo:*|Inter-*|face*) ;; *) exit 19 ;; esac
done < /proc/net/dev
for device in /dev/mem /dev/vport* /dev/kvm /dev/vda /dev/ttyS0; do
  [ -e $device ] && exit 20
done
: > /work/.freeboard-smoke || exit 17
echo fenced
";

/// How long the test may take: it takes a few seconds where the machine is translated.
const LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn smoke_test(provider: &dyn Provider) -> Result<(), CreateError> {
    try_forbidden(provider, SCRIPT, LIMIT).await
}
