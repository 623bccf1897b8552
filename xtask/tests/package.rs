//! The charm file as Juju would read it.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_yaml::Value;
use tempfile::TempDir;
use xtask::{PackageError, lay_out, pack, package, unpack};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// A file with the header of a binary for a machine (ELF's number), not executable.
fn binary(directory: &Path, machine: u16) -> PathBuf {
    let mut content = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0".to_vec();
    content.extend(machine.to_le_bytes());
    content.extend(b"and so on");
    let path = directory.join(format!("k8s-charm-{machine}"));
    fs::write(&path, content).unwrap();
    path
}

fn made(machine: u16) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let charm = package(repository(), &binary(directory.path(), machine), directory.path()).unwrap();
    (directory, charm)
}

/// Each member's unix mode and content.
fn members(charm: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut archive = zip::ZipArchive::new(File::open(charm).unwrap()).unwrap();
    (0..archive.len())
        .map(|index| {
            let mut member = archive.by_index(index).unwrap();
            let mut content = Vec::new();
            member.read_to_end(&mut content).unwrap();
            (member.name().to_owned(), (member.unix_mode().unwrap(), content))
        })
        .collect()
}

#[test]
fn the_zip_holds_what_juju_reads_with_its_modes() {
    let (_directory, charm) = made(62);
    assert_eq!(charm.file_name().unwrap(), "k8s_amd64.charm");
    let members = members(&charm);
    for name in ["metadata.yaml", "config.yaml", "actions.yaml", "manifest.yaml", "README.md", "LICENSE"] {
        assert_eq!(members[name].0 & 0o7777, 0o644, "{name}");
    }
    for name in ["dispatch", "hooks/install", "hooks/upgrade-relation-changed"] {
        assert_eq!(members[name].0 & 0o7777, 0o755, "{name}");
    }
    assert!(members["dispatch"].1.starts_with(b"\x7fELF"));
    let templates = members.keys().filter(|name| name.starts_with("templates/")).count();
    assert_eq!(templates, fs::read_dir(repository().join("templates")).unwrap().count());
    let known = ["actions", "config", "dispatch", "hooks/", "manifest", "metadata", "templates/", "README", "LICENSE"];
    for name in members.keys() {
        assert!(known.iter().any(|known| name.starts_with(known)), "{name} has no business in a charm");
    }
}

#[test]
fn the_manifest_names_bases_as_juju_takes_them() {
    for (machine, architecture) in [(62, "amd64"), (183, "arm64")] {
        let (_directory, charm) = made(machine);
        let manifest: Value = serde_yaml::from_slice(&members(&charm)["manifest.yaml"].1).unwrap();
        let bases = manifest["bases"].as_sequence().unwrap();
        assert!(!bases.is_empty());
        for base in bases {
            assert_eq!(base["name"], "ubuntu");
            assert!(base["channel"].is_string(), "Juju refuses `channel: 22.04`: expected string, got float64");
            assert_eq!(base["architectures"], Value::from(vec![architecture]));
        }
        assert!(charm.ends_with(format!("k8s_{architecture}.charm")));
    }
}

#[test]
fn equal_input_gives_equal_charms() {
    let ((_one, first), (_other, second)) = (made(62), made(62));
    assert_eq!(fs::read(first).unwrap(), fs::read(second).unwrap());
}

#[test]
fn what_is_packed_unpacks_to_what_was_laid_out() {
    let (directory, charm) = made(62);
    let (laid_out, unpacked) = (directory.path().join("laid-out"), directory.path().join("unpacked"));
    lay_out(repository(), &binary(directory.path(), 62), &laid_out).unwrap();
    unpack(&charm, &unpacked).unwrap();
    let again = directory.path().join("again.charm");
    pack(&unpacked, &again).unwrap();
    assert_eq!(members(&charm), members(&again));
    for charm in [laid_out, unpacked] {
        assert_eq!(charm.join("dispatch").metadata().unwrap().permissions().mode() & 0o777, 0o755);
        let hook = charm.join("hooks/start").metadata().unwrap();
        assert_eq!(hook.permissions().mode() & 0o777, 0o755);
    }
}

#[test]
fn a_script_as_dispatch_runs_on_every_architecture() {
    let directory = tempfile::tempdir().unwrap();
    let (script, into) = (directory.path().join("script"), directory.path().join("charm"));
    fs::write(&script, "#!/bin/sh\n").unwrap();
    lay_out(repository(), &script, &into).unwrap();
    let manifest = fs::read_to_string(into.join("manifest.yaml")).unwrap();
    assert!(!manifest.contains("architectures"), "{manifest}");
    let error = package(repository(), &script, directory.path()).unwrap_err();
    assert!(matches!(error, PackageError::NotABinary { .. }), "{error}");
}

#[test]
fn what_is_missing_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let binary = binary(directory.path(), 62);
    let error = lay_out(directory.path(), &binary, &directory.path().join("charm")).unwrap_err();
    assert!(error.to_string().contains("actions.yaml is missing"), "{error}");
    let error = unpack(&binary, &directory.path().join("unpacked")).unwrap_err();
    assert!(error.to_string().contains("k8s-charm-62"), "{error}");
    let error = lay_out(repository(), &self::binary(directory.path(), 243), &directory.path().join("riscv"));
    assert!(error.unwrap_err().to_string().contains("amd64 and arm64"));
}

#[test]
fn a_member_that_leads_out_of_the_charm_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let charm = directory.path().join("evil.charm");
    let mut writer = zip::ZipWriter::new(File::create(&charm).unwrap());
    writer.start_file("../evil", zip::write::SimpleFileOptions::default()).unwrap();
    writer.finish().unwrap();
    assert!(unpack(&charm, &directory.path().join("into")).is_err());
    assert!(!directory.path().join("evil").exists());
}
