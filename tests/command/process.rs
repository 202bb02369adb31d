//! A gateway as a process, with a directory of its own.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// A process that hangs fails its test within this.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A directory for one test; gone with it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("c{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// The least there is to serve, on free ports, with these lines at the top.
pub(crate) fn least(lines: &str) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [log]\naccess_log = \"off\"\n{lines}\n\
         [[models]]\nname = \"m\"\n[[models.backends]]\nurl = \"http://127.0.0.1:1\"\n"
    )
}

pub(crate) fn tidegate() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
}

/// A command to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    tidegate()
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A process that is killed with its test.
pub(crate) struct Running {
    child: Child,
    log: BufReader<std::process::ChildStderr>,
}

impl Running {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        Self { child, log }
    }

    /// Where clients and operators connect, as it tells in its log.
    pub(crate) fn listening(&mut self) -> (SocketAddr, SocketAddr) {
        let mut told = String::new();
        loop {
            let mut line = String::new();
            if self.log.read_line(&mut line).unwrap() == 0 {
                panic!("it ended before it listened:\n{told}");
            }
            let plain = without_colours(&line);
            if let Some(addresses) = addresses(&plain) {
                return addresses;
            }
            told += &plain;
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// The exit code once it has ended by itself.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn addresses(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    let (_, rest) = line.split_once("listening addr=")?;
    let (public, admin) = rest.trim().split_once(" admin=")?;
    Some((public.parse().unwrap(), admin.parse().unwrap()))
}

fn without_colours(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain += part.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain
}

/// The status and the body of a page.
pub(crate) fn get(addr: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}
