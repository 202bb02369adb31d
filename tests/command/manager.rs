//! The gateway under a service manager: what it tells it, and the sockets it takes.

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::process::{Folder, LIMIT, Running, get, least, run, stderr, tidegate};

/// The other end of `NOTIFY_SOCKET`.
struct Manager {
    folder: Folder,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Self {
        let folder = Folder::new();
        let socket = UnixDatagram::bind(folder.0.join("n")).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Self { folder, socket }
    }

    fn serve(&self, lines: &str) -> Command {
        let mut command = tidegate();
        command.arg("serve");
        command.arg(self.folder.write("tidegate.toml", &least(lines)));
        command.env("NOTIFY_SOCKET", self.folder.0.join("n"));
        command
    }

    /// The assignments of the next message.
    fn told(&self) -> Vec<String> {
        let mut bytes = [0; 4096];
        let length = self.socket.recv(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes[..length]);
        text.lines().map(str::to_owned).collect()
    }

    /// The next message that is about more than how it stands.
    fn news(&self) -> Vec<String> {
        loop {
            let told = self.told();
            if !told.iter().any(|line| line.starts_with("STATUS=")) {
                return told;
            }
        }
    }
}

#[test]
fn a_manager_is_told_of_the_start_a_reload_and_the_end() {
    let manager = Manager::new();
    let mut gateway = Running::spawn(&mut manager.serve(""));
    // The first of all: nothing is told before it listens.
    assert_eq!(manager.told(), ["READY=1"]);
    let (_, admin) = gateway.listening();
    assert_eq!(get(admin, "/livez").0, 200);
    let health = |more: &[&str]| {
        let admin = format!("http://{admin}/");
        let arguments = [&["health", "--from", &admin][..], more].concat();
        let output = run(&arguments);
        let said = String::from_utf8(output.stdout.clone()).unwrap() + &stderr(&output);
        (output.status.code(), said)
    };
    assert_eq!(health(&["--live"]), (Some(0), "alive\n".to_owned()));
    let (code, why) = health(&[]);
    assert_eq!(code, Some(1));
    assert!(
        why.starts_with("tidegate: not ready: model m: 127.0.0.1:1 is starting"),
        "{why}"
    );
    let stands = "STATUS=0 of 1 backends usable, 0 requests in flight, 0 waiting";
    assert_eq!(manager.told(), [stands]);
    gateway.signal(Signal::HUP);
    let reloading = manager.news();
    let [first, time] = &reloading[..] else {
        panic!("{reloading:?}");
    };
    assert_eq!(first, "RELOADING=1");
    let time = time.strip_prefix("MONOTONIC_USEC=").unwrap();
    assert!(time.parse::<u64>().unwrap() > 0, "{time}");
    assert_eq!(manager.news(), ["READY=1"]);
    gateway.signal(Signal::TERM);
    // The drain timeout of 300 s and a little, in microseconds.
    let stopping = manager.news();
    assert_eq!(stopping[0], "STOPPING=1");
    let extended = stopping[1].strip_prefix("EXTEND_TIMEOUT_USEC=").unwrap();
    let server = tidegate::config::Config::default().server;
    let least = server.drain_timeout.as_micros();
    assert!(extended.parse::<u128>().unwrap() > least, "{stopping:?}");
    assert_eq!(gateway.ended(), Some(0));
}

#[test]
fn a_watchdog_hears_that_the_gateway_lives_again_and_again() {
    let manager = Manager::new();
    let mut command = manager.serve("");
    command.env("WATCHDOG_USEC", "200000");
    let mut gateway = Running::spawn(&mut command);
    assert_eq!(manager.told(), ["READY=1"]);
    for _ in 0..3 {
        let told = manager.told();
        assert_eq!(told[0], "WATCHDOG=1", "{told:?}");
        assert!(told[1].starts_with("STATUS="), "{told:?}");
    }
    gateway.signal(Signal::TERM);
    assert_eq!(manager.news()[0], "STOPPING=1");
    assert_eq!(gateway.ended(), Some(0));
}

/// Runs `command` with these sockets as descriptors 3 and 4.
fn with_sockets(command: &Command, sockets: [TcpListener; 2], names: &str) -> Command {
    let mut shell = Command::new("sh");
    let moved = "exec 3<&0 4<&1 0</dev/null 1>&2; exec \"$@\"";
    shell.args(["-c", moved, "sh"]);
    shell.arg(command.get_program()).args(command.get_args());
    let [three, four] = sockets.map(|socket| Stdio::from(OwnedFd::from(socket)));
    shell.stdin(three).stdout(four);
    shell.env("LISTEN_FDS", "2").env("LISTEN_FDNAMES", names);
    shell
}

#[test]
fn sockets_of_the_manager_are_served_in_place_of_the_configured_addresses() {
    let folder = Folder::new();
    // Nobody could listen here: what is configured is not even tried.
    let text = least("").replace("127.0.0.1:0", "192.0.2.1:80");
    let text = text.replacen("192.0.2.1:80", "192.0.2.1:81", 1);
    let text = text.replace("[log]", "token_file = \"token\"\n[log]");
    folder.write("token", "0123456789abcdef\n");
    let mut command = tidegate();
    command.arg("serve").arg(folder.write("t.toml", &text));
    let open = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (admin, public) = (open(), open());
    let expected = (public.local_addr().unwrap(), admin.local_addr().unwrap());
    let mut command = with_sockets(&command, [admin, public], "admin:public");
    let mut gateway = Running::spawn(&mut command);
    assert_eq!(gateway.listening(), expected);
    assert_eq!(get(expected.1, "/livez"), (200, "ok\n".to_owned()));
    let (status, body) = get(expected.0, "/v1/nothing");
    assert_eq!(status, 404, "{body}");
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.ended(), Some(0));
}

#[test]
fn a_socket_that_is_not_named_for_its_use_is_told_with_the_way_to_name_it() {
    let folder = Folder::new();
    let mut command = tidegate();
    command.arg("serve").arg(folder.write("t.toml", &least("")));
    let open = || TcpListener::bind("127.0.0.1:0").unwrap();
    let told = |names: &str| {
        let mut command = with_sockets(&command, [open(), open()], names);
        let output = command.stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        stderr(&output)
    };
    let wrong = told("public:tidegate.socket");
    assert!(
        wrong.ends_with(
            "named \"tidegate.socket\"; name it public or admin (FileDescriptorName=)\n"
        ),
        "{wrong}"
    );
    let twice = told("public:public");
    assert!(
        twice.ends_with("named \"public\"; give one of each\n"),
        "{twice}"
    );
    // A file is no socket.
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec 3</dev/null; exec \"$@\"", "sh"]);
    shell.arg(command.get_program()).args(command.get_args());
    shell.env("LISTEN_FDS", "1");
    shell.stdout(Stdio::from(File::open("/dev/null").unwrap()));
    let output = shell.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    assert!(told.contains("fd 3 is not a socket"), "{told}");
    assert!(told.ends_with("(ListenStream=)\n"), "{told}");
}
