#!/bin/sh
# Runs as a unit in the installed system once it is up: does what the guide says, and leaves `name=value` lines, the whole
# output of each step, and switches the system off.
exec 2>&1
cd /root
: >result
say() { echo "$1=$2" >>result; }
step() {
    name=$1; shift
    "$@" >"step-$name" 2>&1 </dev/null
    say "$name" $?
}
both_run() { systemctl is-active --quiet freeboard.service && systemctl is-active --quiet sandboxd.service; }
until_up() {
    turn=0
    until both_run; do
        turn=$((turn + 1))
        [ "$turn" -lt 600 ] || break
        sleep 0.1
    done
}
pid() { systemctl show --property MainPID --value "$1"; }
run() { sandboxd run --caller lab --grant g --floor container -- /bin/sh -c 'echo hello from inside'; }

until_up
step up both_run
step status systemctl status --no-pager freeboard.socket freeboard sandboxd
step run run
step freeboard-doctor freeboard doctor
step sandboxd-doctor sandboxd doctor
cp "/proc/$(pid freeboard)/status" broker-status
step readable-key setpriv --reuid freeboard --clear-groups cat /var/lib/freeboard/ca/ca-key.pem

before=$(pid freeboard)
step reload systemctl reload freeboard sandboxd
say same-after-reload "$([ "$before" = "$(pid freeboard)" ] && echo yes)"
step restart systemctl restart freeboard
say new-after-restart "$([ "$before" != "$(pid freeboard)" ] && echo yes)"
until_up
step run-after-restart run

# A broker that is killed comes back by itself, and then sandboxd's runs do as well.
kill -9 "$(pid freeboard)"
sleep 0.2
step comes-back until_up
until [ -e step-run-after-kill ] && grep -q '^run-after-kill=0$' result; do
    turn=$((turn + 1))
    [ "$turn" -lt 100 ] || break
    step run-after-kill run
    sleep 0.2
done

step demo sandboxd demo
# The same version once more is an upgrade to the scripts.
step upgrade dpkg -i /root/freeboard.deb
until_up
step up-after-upgrade both_run
step run-after-upgrade run
step verify-log freeboard audit verify

step remove dpkg -r freeboard
systemctl is-active freeboard.service sandboxd.service freeboard.socket >still-active
say gone "$([ ! -e /usr/bin/freeboard ] && [ ! -e /usr/bin/sandboxd ] && ! grep -qx active still-active && echo yes)"
step purge dpkg -P freeboard
say log-stays "$(ls /var/lib/freeboard/audit/*.jsonl >/dev/null 2>&1 && echo yes)"
say key-gone "$([ ! -e /var/lib/freeboard/ca ] && echo yes)"
say done yes
journalctl --no-pager --output=short-precise --unit freeboard.service --unit sandboxd.service >journal
systemctl poweroff
