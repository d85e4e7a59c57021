-- Gateways, or scopes of them, that wait because the provider asked to. scope is '' for all scopes. A row stays for a day
-- after the hold.
CREATE TABLE {{schema}}durable_provider_hold (
	gateway text COLLATE "C" NOT NULL,
	scope   text COLLATE "C" NOT NULL,
	since   timestamptz NOT NULL,
	until   timestamptz NOT NULL,
	note    text        NOT NULL,
	PRIMARY KEY (gateway, scope)
);

CREATE INDEX durable_provider_hold_until ON {{schema}}durable_provider_hold (until);

-- Status queries, which are sent while the provider asks to wait.
CREATE INDEX durable_intent_query ON {{schema}}durable_intent (gateway, next_at) WHERE state = 4 AND ask AND NOT later;
