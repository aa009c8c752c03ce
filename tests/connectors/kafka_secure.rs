//! The Kafka source and sink on a broker that wants TLS and passwords.

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use crate::harness::kafka::{Broker, Record, free_ports};
use crate::harness::weir::Job;

const USER: &str = "SCRAM-SHA-512=[name=alice,password=alice-secret]";

/// A broker with a listener for everybody, one with TLS, and one with TLS and passwords.
struct Secure {
    broker: Broker,
    folder: tempfile::TempDir,
    tls: String,
    sasl: String,
}

/// Makes a key with a certificate that signs itself, and exports the certificate.
fn certificate(folder: &std::path::Path, name: &str) -> PathBuf {
    let keytool = |arguments: &str, extra: &[&str]| {
        let mut command = Command::new("keytool");
        command.current_dir(folder).args(arguments.split(' ')).args(extra);
        let done = command.output().unwrap_or_else(|e| panic!("keytool, of the Java development kit: {e}"));
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    };
    let store = format!("-alias {name} -keystore {name}.p12 -storetype PKCS12 -storepass secret");
    keytool(
        &format!("-genkeypair {store}word -keyalg RSA -keysize 2048 -validity 30 -dname CN={name} -ext SAN=ip:127.0.0.1"),
        &["-ext", "bc=ca:true"],
    );
    keytool(&format!("-exportcert {store}word -rfc -file {name}.pem"), &[]);
    folder.join(format!("{name}.pem"))
}

fn secure() -> &'static Secure {
    static SECURE: LazyLock<Secure> = LazyLock::new(|| {
        let folder = tempfile::tempdir().unwrap();
        certificate(folder.path(), "broker");
        certificate(folder.path(), "stranger");
        let [tls, sasl] = free_ports().map(|port| format!("127.0.0.1:{port}"));
        let settings = |[port, controller]: [u16; 2]| {
            let open = format!("PLAINTEXT://127.0.0.1:{port},TLS://{tls},SASL://{sasl}");
            let module = "org.apache.kafka.common.security";
            vec![
                format!("listeners={open},CONTROLLER://127.0.0.1:{controller}"),
                format!("advertised.listeners={open}"),
                "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,TLS:SSL,SASL:SASL_SSL".to_string(),
                format!("ssl.keystore.location={}", folder.path().join("broker.p12").display()),
                "ssl.keystore.type=PKCS12".to_string(),
                "ssl.keystore.password=secretword".to_string(),
                "ssl.key.password=secretword".to_string(),
                "listener.name.sasl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512".to_string(),
                format!(
                    "listener.name.sasl.plain.sasl.jaas.config={module}.plain.PlainLoginModule required user_bob=\"bob-secret\";"
                ),
                format!("listener.name.sasl.scram-sha-512.sasl.jaas.config={module}.scram.ScramLoginModule required;"),
            ]
        };
        let broker = Broker::start_with(settings, &format!("--add-scram {USER}"));
        Secure { broker, folder, tls, sasl }
    });
    &SECURE
}

impl Secure {
    /// Properties for the listener with passwords.
    fn password(&self, mechanism: &str, user: &str, password: &str) -> String {
        format!(
            "brokers: '{}', properties: {{security.protocol: SASL_SSL, sasl.mechanism: {mechanism}, sasl.username: {user}, \
             sasl.password: {password}, ssl.ca.location: '{}'}}",
            self.sasl,
            self.folder.path().join("broker.pem").display()
        )
    }

    /// Properties for the listener with TLS alone, and whose certificate is trusted.
    fn trust(&self, certificate: &str) -> String {
        let file = self.folder.path().join(certificate);
        format!("brokers: '{}', properties: {{security.protocol: SSL, ssl.ca.location: '{}'}}", self.tls, file.display())
    }

    fn copy(&self, from: &str, source: &str, to: &str, sink: &str) -> Job {
        Job::new(&format!(
            "
pipeline: secure
delivery: at-least-once
restarts: 0
checkpoint: {{store: ./state}}
sources: [kafka: {{{source}, topic: {from}, until: latest}}]
sinks: [kafka: {{{sink}, topic: {to}}}]
"
        ))
    }
}

#[test]
fn messages_pass_through_listeners_with_tls_scram_and_plain_passwords() {
    let secure = secure();
    let (scram, plain) =
        (secure.password("SCRAM-SHA-512", "alice", "alice-secret"), secure.password("PLAIN", "bob", "bob-secret"));
    let tls = secure.trust("broker.pem");
    for topic in ["secure_1", "secure_2", "secure_3", "secure_4"] {
        secure.broker.create_topic(topic, 1, &[]);
    }
    secure.broker.produce("secure_1", (0..500).map(|n| Record::value(format!("{n}"))));
    secure.copy("secure_1", &scram, "secure_2", &plain).run().ok();
    secure.copy("secure_2", &plain, "secure_3", &tls).run().ok();
    secure.copy("secure_3", &tls, "secure_4", &scram).run().ok();
    let values: Vec<_> = secure.broker.consume_all("secure_4").into_iter().filter_map(|record| record.value).collect();
    let sent: Vec<_> = (0..500).map(|n| n.to_string().into_bytes()).collect();
    assert_eq!(values, sent);
}

#[test]
fn a_wrong_password_or_an_untrusted_certificate_is_refused_with_what_to_check() {
    let secure = secure();
    secure.broker.create_topic("refused", 1, &[]);
    let right = secure.password("SCRAM-SHA-512", "alice", "alice-secret");
    for (wrong, words) in [
        (secure.password("SCRAM-SHA-512", "alice", "guessed-it"), ["refuses the credentials", "sasl.*"]),
        (secure.password("PLAIN", "bob", "guessed-it"), ["refuses the credentials", "sasl.*"]),
        (secure.trust("stranger.pem"), ["no secure connection", "ssl.*"]),
    ] {
        for (source, sink) in [(&wrong, &right), (&right, &wrong)] {
            for command in ["run", "check"] {
                let ended = secure.copy("refused", source, "refused", sink).weir(&[command, "pipeline.yaml"]);
                let ended = ended.refused(2, &words);
                assert!(!ended.stderr.contains("guessed-it"), "the password is told: {}", ended.stderr);
            }
        }
    }
}
