//! The subscription as a thing: looks it up, creates it on request, and says what it promises.

use std::time::Duration;

use super::wire::{self, Subscription};
use super::{Create, Promise, Settings};
use crate::error::{Error, Result};
use crate::pubsub::{self, Service, full_name};

/// What has to be known of a subscription before messages are pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// A confirmed acknowledgement means that the message never comes again.
    pub exactly_once: bool,
    /// Messages of one key come in order, and again in order: those behind a redelivered one as well.
    pub ordered: bool,
    /// How long it keeps messages.
    pub retention: Duration,
}

impl Facts {
    /// Whether what is acknowledged may come again, so that ids have to be remembered for longer.
    pub fn repeats(&self) -> bool {
        !self.exactly_once || self.ordered
    }
}

/// The service keeps unacknowledged messages for 7 days unless told otherwise.
const RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

const GET_SUBSCRIPTION: &str = "/google.pubsub.v1.Subscriber/GetSubscription";
const CREATE_SUBSCRIPTION: &str = "/google.pubsub.v1.Subscriber/CreateSubscription";

fn service(settings: &Settings) -> Result<Service> {
    settings.access.service(&format!("subscription={}", settings.subscription), 1)
}

/// The subscription, if there is one.
pub async fn find(settings: &Settings) -> Result<Option<Subscription>> {
    let service = service(settings)?;
    match service.ask(GET_SUBSCRIPTION, pubsub::named(&settings.subscription)).await {
        Ok(answer) => wire::subscription(&answer).map(Some),
        Err(failed) if failed.not_found() => Ok(None),
        Err(failed) => Err(service.explain("cannot look up the subscription", &failed)),
    }
}

/// What to do without one.
pub fn missing(settings: &Settings) -> Error {
    Error::config("there is no such subscription: create it, mend the name, or have it created by `create: {topic: …}`")
        .with("subscription", &settings.subscription)
}

/// Creates topic and subscription; either may be there by now.
pub async fn create(settings: &Settings, create: &Create) -> Result<()> {
    let full = |name: &str| full_name(settings.config.project.as_deref(), "topics", name);
    let topic = full(&create.topic)?;
    let dead_letter_topic = create.dead_letter_topic.as_deref().map(full).transpose()?;
    pubsub::create_topic(&settings.access, &topic).await?;
    let new = wire::NewSubscription {
        name: &settings.subscription,
        topic: &topic,
        ack_deadline_seconds: create.ack_deadline.0.as_secs(),
        ordered: create.ordering,
        exactly_once: create.exactly_once,
        filter: &create.filter,
        dead_letters: dead_letter_topic.as_deref().map(|topic| (topic, create.max_delivery_attempts)),
    };
    let service = service(settings)?;
    match service.ask(CREATE_SUBSCRIPTION, new.encode()).await {
        Ok(_) => tracing::info!(source = %settings.name, subscription = settings.subscription, "created a subscription"),
        Err(failed) if failed.exists() => {}
        Err(failed) => return Err(service.explain("cannot create the subscription", &failed)),
    }
    Ok(())
}

/// Looks whether messages can be pulled from the subscription, and what it promises.
pub async fn open(settings: &Settings) -> Result<Facts> {
    let Some(found) = find(settings).await? else { return Err(missing(settings)) };
    let refused = |why: &str| Err(Error::config(why).with("subscription", &settings.subscription));
    if found.detached {
        return refused("the subscription is detached from its topic: create another");
    }
    if found.pushes {
        return refused("the subscription pushes its messages elsewhere: name one that is pulled from");
    }
    let retention = u64::try_from(found.retention_seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
    let facts = Facts { exactly_once: found.exactly_once, ordered: found.ordered, retention: retention.unwrap_or(RETENTION) };
    if settings.promise == Promise::ExactlyOnce {
        let window = settings.config.dedupe_window;
        let (name, subscription) = (&settings.name, &settings.subscription);
        match facts.repeats() {
            false => {
                tracing::info!(source = %name, subscription, "exactly-once: the subscription never repeats what it has confirmed")
            }
            true => tracing::info!(
                source = %name, subscription, %window, exactly_once_delivery = facts.exactly_once, ordering = facts.ordered,
                "exactly-once as long as Pub/Sub repeats an acknowledged message within `dedupe_window` only"
            ),
        }
    }
    Ok(facts)
}
