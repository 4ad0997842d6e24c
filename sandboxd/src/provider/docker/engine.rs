//! The engine as it is found: its runtimes, the image, and what of them is refused.

use std::path::{Path, PathBuf};

use bollard::Docker;
use bollard::models::{ContainerCreateBody, ImageInspect, SystemInfo};
use bollard::query_parameters::{ContainerArchiveInfoOptionsBuilder, CreateContainerOptions};

use super::config::{DockerConfig, Runtime};
use super::container::OWNER;
use super::limits;
use crate::causes::chain;
use crate::provider::CreateError;
use crate::provider::program::Program;

/// Where an engine looks for a runtime that it knows by name only.
const FOLDERS: [&str; 5] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin"];

/// Where an image has its programs.
const PROGRAMS: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// Variables by which the loader or the C library of an image would load what the image's maker, or a run, chose: into our
/// guest program too.
const LOADERS: [&str; 5] = ["LD_", "GLIBC_TUNABLES=", "LOCPATH=", "NLSPATH=", "GCONV_PATH="];

/// What runs are made with.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) version: String,
    pub(super) image: Image,
    /// The runtime's program.
    pub(super) runtime: Program,
    /// Programs of the image that run snippets.
    pub(super) node: Option<PathBuf>,
    pub(super) python: Option<PathBuf>,
}

/// An image by its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Image {
    /// `sha256:` and 64 hex digits.
    pub(super) id: String,
    /// Its variables; they reach the steps only.
    pub(super) variables: Vec<(String, String)>,
}

/// Connects. Nothing is sent yet.
pub(super) fn connect(socket: &Path) -> Result<Docker, CreateError> {
    let path = socket.to_string_lossy();
    Docker::connect_with_unix(&path, limits::ENGINE_SECONDS, bollard::API_DEFAULT_VERSION)
        .map_err(|error| failed(&format!("connect with the engine at `{path}`"), &error))
}

/// A failure of the engine, with what to do.
pub(super) fn failed(step: &str, error: &bollard::errors::Error) -> CreateError {
    CreateError::Host {
        what: format!("cannot {step}: {}", chain(error)),
        help: "is the Docker Engine running, and may sandboxd use its socket (`docker_socket`)?".into(),
    }
}

impl Engine {
    /// Looks at everything that runs rest on.
    pub(super) async fn look(
        docker: Docker,
        config: &DockerConfig,
        owner: &str,
    ) -> Result<(Docker, Self), CreateError> {
        let docker = docker
            .negotiate_version()
            .await
            .map_err(|error| failed("ask the engine for its version", &error))?;
        let info = docker.info().await.map_err(|error| failed("ask the engine about itself", &error))?;
        let refused = |what: String| CreateError::Host { what, help: "see docs/providers/docker.md".into() };
        let path = runtime_path(&info, config.runtime).map_err(refused)?;
        let runtime = Program::at(path.clone())
            .map_err(|error| refused(format!("cannot use the runtime `{}`: {error}", path.display())))?;
        if config.image.is_empty() || config.image.starts_with('-') {
            return Err(CreateError::Host {
                what: format!("`{}` is no name of an image", config.image),
                help: "name one with `docker_image`".into(),
            });
        }
        let found = docker.inspect_image(&config.image).await.map_err(|error| CreateError::Host {
            what: format!("cannot find the image `{}`: {}", config.image, chain(&error)),
            help: "sandboxd pulls nothing: `docker pull` it, and name it with `docker_image`".into(),
        })?;
        let image = check(&found).map_err(|why| refused(format!("the image `{}` {why}", config.image)))?;
        let version = info.server_version.unwrap_or_default();
        let [node, python] = programs(&docker, &image.id, owner, ["node", "python3"]).await?;
        Ok((docker, Self { version, image, runtime, node, python }))
    }
}

/// Where the image has these programs: asked of a container that is never started.
async fn programs<const N: usize>(
    docker: &Docker,
    image: &str,
    owner: &str,
    names: [&str; N],
) -> Result<[Option<PathBuf>; N], CreateError> {
    let body = ContainerCreateBody {
        image: Some(image.to_owned()),
        entrypoint: Some(vec!["/never-started".into()]),
        network_disabled: Some(true),
        labels: Some([(OWNER.to_owned(), owner.to_owned())].into()),
        ..ContainerCreateBody::default()
    };
    let created = docker.create_container(None::<CreateContainerOptions>, body).await;
    let id = created.map_err(|error| failed("create a container of the image", &error))?.id;
    let mut found = names.map(|_| None);
    for (name, found) in names.iter().zip(&mut found) {
        for folder in PROGRAMS {
            let path = Path::new(folder).join(name);
            let options = ContainerArchiveInfoOptionsBuilder::default().path(&path.to_string_lossy()).build();
            if docker.get_container_archive_info(&id, Some(options)).await.is_ok() {
                *found = Some(path);
                break;
            }
        }
    }
    super::run::remove(docker, &id).await;
    Ok(found)
}

/// The program that the engine starts for this runtime.
fn runtime_path(info: &SystemInfo, runtime: Runtime) -> Result<PathBuf, String> {
    let word = runtime.word();
    let known = info.runtimes.as_ref().and_then(|runtimes| runtimes.get(word));
    let Some(known) = known else { return Err(format!("the engine has no runtime `{word}`")) };
    let named = Path::new(known.path.as_deref().unwrap_or(word));
    if named.file_name().is_none_or(|name| name != word) {
        return Err(format!("the engine's runtime `{word}` is the program `{}`", named.display()));
    }
    if named.is_absolute() {
        return Ok(named.to_owned());
    }
    let places = FOLDERS.iter().map(|folder| Path::new(folder).join(named));
    places
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| format!("the program of runtime `{word}` is nowhere"))
}

/// What an image must be. SECURITY: a volume would be a writable place of the host without a size; a loader's variable would
/// run code of the image in our guest program (test: an_image_with_a_volume_or_a_loaders_variable_is_refused).
fn check(image: &ImageInspect) -> Result<Image, String> {
    let id = image.id.clone().unwrap_or_default();
    let digits = id.strip_prefix("sha256:").unwrap_or_default();
    if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(format!("has no identity by content, but `{id}`"));
    }
    if image.os.as_deref() != Some("linux") {
        return Err("is not for Linux".into());
    }
    let config = image.config.clone().unwrap_or_default();
    if config.volumes.is_some_and(|volumes| !volumes.is_empty()) {
        return Err("declares a volume, which would be a place of the host to write".into());
    }
    let variables = config.env.unwrap_or_default();
    if let Some(loader) = variables.iter().find(|line| LOADERS.iter().any(|name| line.starts_with(name))) {
        let name = loader.split('=').next().unwrap_or_default();
        return Err(format!("sets `{name}`, which decides what programs load"));
    }
    let split = |line: &String| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok(Image { id, variables: variables.iter().filter_map(split).collect() })
}

#[cfg(test)]
mod tests {
    use bollard::models::{ImageConfig, Runtime as Registered};

    use super::*;

    fn image(config: ImageConfig) -> ImageInspect {
        let id = format!("sha256:{}", "0a".repeat(32));
        ImageInspect {
            id: Some(id),
            os: Some("linux".into()),
            config: Some(config),
            ..ImageInspect::default()
        }
    }

    #[test]
    fn an_image_with_a_volume_or_a_loaders_variable_is_refused() {
        let plain = ImageConfig { env: Some(vec!["PATH=/bin".into()]), ..ImageConfig::default() };
        assert_eq!(check(&image(plain)).unwrap().variables, [("PATH".to_owned(), "/bin".to_owned())]);
        let volume = ImageConfig { volumes: Some(vec!["/data".into()]), ..ImageConfig::default() };
        assert!(check(&image(volume)).unwrap_err().contains("volume"));
        for line in ["LD_PRELOAD=/x.so", "GLIBC_TUNABLES=x", "GCONV_PATH=/work"] {
            let loader = ImageConfig { env: Some(vec![line.into()]), ..ImageConfig::default() };
            assert!(check(&image(loader)).is_err(), "{line}");
        }
        let unnamed = ImageInspect { id: Some("latest".into()), ..image(ImageConfig::default()) };
        assert!(check(&unnamed).is_err());
    }

    #[test]
    fn f35_a_runtime_is_known_by_its_program() {
        let registered = |word: &str, path: &str| SystemInfo {
            runtimes: Some(
                [(word.to_owned(), Registered { path: Some(path.into()), ..Registered::default() })].into(),
            ),
            ..SystemInfo::default()
        };
        let path = runtime_path(&registered("runsc", "/usr/bin/runsc"), Runtime::Runsc);
        assert_eq!(path, Ok(PathBuf::from("/usr/bin/runsc")));
        let another = runtime_path(&registered("runsc", "/usr/bin/runc"), Runtime::Runsc).unwrap_err();
        assert!(another.contains("`/usr/bin/runc`"), "{another}");
        assert!(runtime_path(&registered("runc", "runc"), Runtime::Runsc).is_err());
    }
}
