//! The smoke test: a real run that tries forbidden things. A provider that lets one through does not serve.

use std::time::Duration;

use crate::provider::native::smoke::try_forbidden;
use crate::provider::{CreateError, Provider};

/// Ends with the number of what worked and must not. Only what a shell has built in, so that it works in any image.
const SCRIPT: &str = "\
for place in /usr /etc /bin /var /root /home /run /sys /proc /; do
  (: > $place/.freeboard-smoke) 2>/dev/null && exit 11
done
(: < /proc/1/mem) 2>/dev/null && exit 13
(: > /proc/sys/kernel/hostname) 2>/dev/null && exit 14
(: > /run/freeboard-guest) 2>/dev/null && exit 15
kill -9 1 2>/dev/null
while read -r name rest; do
  case $name in lo:*|Inter-*|face*) ;; *) exit 19 ;; esac
done < /proc/net/dev
for place in /var/run/docker.sock /run/containerd/containerd.sock /dev/kvm /dev/mem /dev/vda /dev/sda; do
  [ -e $place ] && exit 20
done
: > /work/.freeboard-smoke || exit 17
echo fenced
";

/// How long the test may take.
const LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn smoke_test(provider: &dyn Provider) -> Result<(), CreateError> {
    try_forbidden(provider, SCRIPT, LIMIT).await
}
