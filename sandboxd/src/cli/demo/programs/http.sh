# `call METHOD URL [BODY]` prints status and body. With curl where there is one, else bash and the proxy door.
call() {
  if command -v curl >/dev/null 2>&1; then
    curl --silent --show-error --max-time 10 --request "$1" ${3:+--header 'Content-Type: application/json' --data "$3"} \
      --write-out ' <- %{http_code}\n' "$2" 2>&1
  else
    bash -c '
      host=${2#*://}; host=${host%%/*}
      exec 3<>/dev/tcp/198.18.0.1/3128 || exit 1
      printf "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %s\r\n\r\n%s" \
        "$1" "$2" "$host" "${#3}" "$3" >&3
      cat <&3 | tr -d "\r" | sed -n "1p;\$p"' bash "$1" "$2" "$3" 2>&1
  fi
}
