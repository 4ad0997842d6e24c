# Each line: what was tried, and what this program saw.
. ./http.sh
show() { printf '%s\t%s\n' "$1" "$(echo "$2" | tr '\n\t' '  ')"; }
show route "$(call GET '@API@/v1/secrets')"
show host "$(call GET https://ungranted.example/)"
show raw "$(call GET https://93.184.216.34/)"
show udp "$(bash -c 'exec 3<>/dev/udp/93.184.216.34/4433 && echo hello >&3 && head -c1 <&3' 2>&1)"
show dns "$(bash -c 'exec 3<>/dev/udp/8.8.8.8/53 && printf "\007\007\001\000\000\001\000\000\000\000\000\000\011elsewhere\007example\000\000\001\000\001" >&3 && head -c4 <&3 | od -An -tx1' 2>&1 | sed 's/\(.*\)5 *$/\15 (REFUSED)/')"
show metadata "$(call GET http://169.254.169.254/latest/meta-data/)"
