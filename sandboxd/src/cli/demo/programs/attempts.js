// Each line: what was tried, and what this program saw.
const ATTEMPTS = [
  ["route", "@API@/v1/secrets"],
  ["host", "https://ungranted.example/"],
  ["raw", "https://93.184.216.34/"],
  ["metadata", "http://169.254.169.254/latest/meta-data/"],
];
(async () => {
  for (const [name, url] of ATTEMPTS) {
    try {
      const answer = await fetch(url);
      console.log(name + "\t" + answer.status + " " + (await answer.text()).trim());
    } catch (error) {
      console.log(name + "\t" + error);
    }
  }
  const missing = ["WebSocketStream", "UDPSocket", "TCPSocket", "require", "process"];
  console.log("udp\tthere are no sockets: " + missing.filter((n) => typeof globalThis[n] === "undefined").join(", ") + " are undefined");
})();
