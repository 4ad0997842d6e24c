//! The network of a run with a kernel of its own is the gate (ATTACKS D).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use freeboard_control::{Door, Prepared};
use freeboard_sandboxd::job::{Job, NoSink};
use freeboard_sandboxd::provider::Plan;

use crate::support::*;

pub(crate) fn plan(job: Job) -> Plan {
    let prepared = Prepared {
        floor: None,
        ports: vec![8443],
        ca_pem: "-----BEGIN CERTIFICATE-----\nTHE-INTERCEPTION-CA\n-----END CERTIFICATE-----\n".into(),
        policy_digest: String::new(),
        surface: Vec::new(),
        variables: Vec::new(),
        ttl_seconds: None,
    };
    Plan { job, prepared: Some(prepared) }
}

/// A broker of one line: tells each connection where it meant to go.
fn answer_with_destination(socket: OwnedFd) {
    let listener = TcpListener::from(socket);
    std::thread::spawn(move || {
        listener.set_nonblocking(false).unwrap();
        while let Ok((mut connection, _)) = listener.accept() {
            connection.set_nonblocking(false).unwrap();
            let _ = connection.read(&mut [0; 16]);
            let destination = connection.local_addr().unwrap();
            let destination = SocketAddr::new(destination.ip().to_canonical(), destination.port());
            let _ = connection.write_all(destination.to_string().as_bytes());
        }
    });
}

#[test]
fn every_address_ends_at_the_doors_of_the_broker() {
    with_provider(Allowance::default(), async |provider| {
        let script = "import socket\n\
            for a in [('203.0.113.7', 443), ('8.8.8.8', 8443), ('10.0.0.1', 80), ('169.254.169.254', 80), ('100.64.0.1', 443)]:\n\
            \x20   s = socket.create_connection(a, 10); s.sendall(b'x'); print(s.recv(100).decode())\n\
            for a in [('2001:db8::1', 443), ('2606:4700::1111', 443)]:\n\
            \x20   try: s = socket.create_connection(a, 10); s.sendall(b'x'); m = s.recv(100).decode()\n\
            \x20   except OSError: continue\n\
            \x20   if m != '[%s]:443' % a[0]: print('elsewhere', m)\n\
            u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(10)\n\
            u.sendto(b'query', ('9.9.9.9', 53)); print(u.recvfrom(100))\n\
            u.connect(('1.1.1.1', 443)); u.send(b'quic')\n\
            try: u.recv(10); print('answer to quic')\n\
            except ConnectionRefusedError: print('refused at once')\n";
        let plan = plan(python(script));
        let mut sandbox = provider.create(&plan).await.unwrap();
        let evidence = sandbox.measure().await.unwrap();
        assert_eq!(fact(&evidence, "gate").value, "doors of the broker");
        for (door, socket) in sandbox.take_doors() {
            match door {
                Door::Tcp { .. } => answer_with_destination(socket),
                Door::DnsUdp => answer_queries(socket),
                _ => {}
            }
        }
        let outcome = sandbox.release(Arc::new(NoSink)).await.unwrap();
        let (code, stdout, stderr) = first(&outcome);
        assert_eq!(code, 0, "{stdout} {stderr}");
        let lines: Vec<&str> = stdout.lines().collect();
        assert_eq!(
            lines,
            [
                "203.0.113.7:443",
                "8.8.8.8:8443",
                "10.0.0.1:80",
                "169.254.169.254:80",
                "100.64.0.1:443",
                "(b'query', ('9.9.9.9', 53))",
                "refused at once"
            ]
        );
    });
}

/// Sends each datagram back from the address that it was sent to.
fn answer_queries(socket: OwnedFd) {
    use nix::sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg,
    };
    use std::os::fd::AsRawFd;
    let socket = UdpSocket::from(socket);
    socket.set_nonblocking(false).unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        loop {
            let mut space = nix::cmsg_space!(nix::libc::in6_pktinfo);
            let mut parts = [std::io::IoSliceMut::new(&mut buffer)];
            let Ok(message) = recvmsg::<SockaddrStorage>(
                socket.as_raw_fd(),
                &mut parts,
                Some(&mut space),
                MsgFlags::empty(),
            ) else {
                return;
            };
            let (peer, bytes) = (message.address.unwrap(), message.bytes);
            let (v4, v6) = match message.cmsgs().unwrap().next() {
                Some(ControlMessageOwned::Ipv4PacketInfo(mut info)) => {
                    info.ipi_spec_dst = info.ipi_addr;
                    info.ipi_ifindex = 0;
                    (Some(info), None)
                }
                Some(ControlMessageOwned::Ipv6PacketInfo(mut info)) => {
                    info.ipi6_ifindex = 0;
                    (None, Some(info))
                }
                _ => continue,
            };
            let content = [std::io::IoSlice::new(&buffer[..bytes])];
            let control: Vec<ControlMessage<'_>> = v4
                .iter()
                .map(ControlMessage::Ipv4PacketInfo)
                .chain(v6.iter().map(ControlMessage::Ipv6PacketInfo))
                .collect();
            let _ = sendmsg(socket.as_raw_fd(), &content, &control, MsgFlags::empty(), Some(&peer));
        }
    });
}

#[test]
fn d02_d06_d27_d31_other_ways_out_are_closed() {
    with_provider(Allowance::default(), async |provider| {
        let script = "import socket\n\
            def attempt(name, call):\n\
            \x20   try: call(); print(name)\n\
            \x20   except OSError: pass\n\
            attempt('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))\n\
            attempt('packet', lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3))\n\
            attempt('vsock', lambda: socket.socket(40, socket.SOCK_STREAM).connect((2, 1024)))\n\
            attempt('abstract', lambda: socket.socket(socket.AF_UNIX).connect('\\0/tmp/.X11-unix/X0'))\n\
            for port in [22, 5432, 25]:\n\
            \x20   attempt(str(port), lambda: socket.create_connection(('10.1.2.3', port), 3).recv(1) or exit(1))\n\
            import struct\n\
            def route():\n\
            \x20   s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)\n\
            \x20   s.send(struct.pack('IHHII', 28, 25, 5, 1, 0) + bytes(12)); m = s.recv(1000)\n\
            \x20   if struct.unpack_from('i', m, 16)[0] != 0: raise OSError\n\
            attempt('route', route)\n\
            print('end')";
        let plan = plan(python(script));
        let mut sandbox = provider.create(&plan).await.unwrap();
        sandbox.measure().await.unwrap();
        let doors = sandbox.take_doors();
        let outcome = sandbox.release(Arc::new(NoSink)).await.unwrap();
        drop(doors);
        let (_, stdout, stderr) = first(&outcome);
        assert_eq!(stdout, "end\n", "{stderr}");
    });
}

#[test]
fn d01_without_a_gate_there_is_only_the_loopback_link() {
    with_provider(Allowance::default(), async |provider| {
        let script = "import socket\n\
            for a in [('1.1.1.1', 443), ('10.0.0.1', 80), ('169.254.169.254', 80)]:\n\
            \x20   try: socket.create_connection(a, 2); print('connected', a)\n\
            \x20   except OSError: pass\n\
            s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname(), 2); print('itself')";
        let (_, stdout, stderr) = first(&run(provider, python(script)).await.unwrap());
        assert_eq!(stdout, "itself\n", "{stderr}");
    });
}

#[test]
fn the_interception_ca_is_where_tools_look() {
    with_provider(Allowance::default(), async |provider| {
        let script = "for v in SSL_CERT_FILE CURL_CA_BUNDLE REQUESTS_CA_BUNDLE NODE_EXTRA_CA_CERTS; do eval \"f=\\$$v\"; \
                      grep -q THE-INTERCEPTION-CA \"$f\" || echo \"$v: $f\"; done; cat /etc/resolv.conf";
        let plan = plan(shell(script));
        let mut sandbox = provider.create(&plan).await.unwrap();
        sandbox.measure().await.unwrap();
        let (_, stdout, _) = first(&sandbox.release(Arc::new(NoSink)).await.unwrap());
        assert!(stdout.starts_with("nameserver 198.18.0.1\n"), "{stdout}");
    });
}
