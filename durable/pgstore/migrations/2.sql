-- Gateways, or scopes of them, whose provider asked to wait. scope is '' for all scopes. A row stays for a day after the hold.
CREATE TABLE {{schema}}durable_provider_hold (
	gateway text COLLATE "C" NOT NULL,
	scope   text COLLATE "C" NOT NULL,
	since   timestamptz NOT NULL,
	until   timestamptz NOT NULL,
	note    text        NOT NULL,
	PRIMARY KEY (gateway, scope)
);

-- Status queries, which are sent while the provider asks to wait.
CREATE INDEX durable_intent_query ON {{schema}}durable_intent (gateway, next_at) WHERE state = 4 AND ask AND NOT later;
