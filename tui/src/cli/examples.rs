//! The examples that every help text starts with.

pub(crate) const LOUDOU: &str = "\
Examples:
  loudou                                          watch the buckets, live
  loudou check rules.yaml                         check a rule file before Envoy sees it
  loudou replay --config rules.yaml --trace access.log    what it would have done yesterday
  loudou buckets --state refusing                 who is refused, right now
  loudou top --by refused                         who was refused most, lately
  loudou explain --path /reply -H 'x-user-id: alice'    why a request would be refused
  loudou set per-user --capacity 100 --for 30m    raise a limit, for half an hour
  loudou unset per-user                           take that back
  loudou ban per-user mallory --for 10m           refuse all that somebody sends
  loudou override per-user alice scale=10         ten times as much for one key";

pub(crate) const TOP: &str = "\
Examples:
  loudou top
  loudou --url http://10.0.0.7:9911 top --interval 250ms
  loudou top --by refused --limit 10              who is refused most, no screen
  loudou top --by admitted --rule per-user --output csv > busiest.csv";

pub(crate) const CHECK: &str = "\
Examples:
  loudou check rules.yaml other.json
  loudou check envoy.yaml                         the rules in Envoy's configuration
  loudou export | loudou check -
  loudou check --output json rules.yaml           for an editor or a pipeline";

pub(crate) const REPLAY: &str = "\
Examples:
  loudou replay --config rules.yaml --trace access.log
  loudou replay --config rules.yaml --trace access.log --compare stricter.yaml
  zcat access.log.gz | loudou replay --config rules.yaml --output json
  loudou replay --config rules.yaml --trace trace.jsonl --output jsonl    each decision";

pub(crate) const STATUS: &str = "\
Examples:
  loudou status
  loudou status --output json | jq .store";

pub(crate) const RULES: &str = "\
Examples:
  loudou rules
  loudou rules per-user                           in full, with its edit";

pub(crate) const BUCKETS: &str = "\
Examples:
  loudou buckets                                  the most refused first
  loudou buckets --rule per-user --key alice
  loudou buckets --state busy --sort level --limit 10
  loudou buckets --output csv > buckets.csv       one line per limit";

pub(crate) const GET: &str = "\
Examples:
  loudou get per-user alice                       its limits, its ban, its override
  loudou get per-user alice --output json | jq .limits";

pub(crate) const EXPLAIN: &str = "\
Examples:
  loudou explain -X POST --path /reply -H 'x-user-id: alice'
  loudou explain --path '/search?q=x' --source 203.0.113.7 --host api.example.com
  loudou explain --metadata envoy.filters.http.jwt_authn.payload.plan=free --cost 5
  loudou explain --config rules.yaml -H 'x-user-id: alice'    by a file, before Envoy has it
  loudou explain -H 'x-user-id: alice' -o json | jq .verdict";

pub(crate) const SET: &str = "\
Examples:
  loudou set per-user --capacity 100 --rate 200/60s
  loudou set per-user --limit burst --capacity 30 --for 30m --reason 'launch day'
  loudou set per-user --limit daily window=1h slots=6
  loudou set per-user --mode shadow --dry-run
  loudou set per-user --file limits.yaml --carry keep";

pub(crate) const UNSET: &str = "\
Examples:
  loudou unset per-user
  loudou unset per-user --carry reset --reason 'launch is over'";

pub(crate) const RESET: &str = "\
Examples:
  loudou reset per-user alice --reason 'ticket 4711'";

pub(crate) const BAN: &str = "\
Examples:
  loudou ban per-user mallory --for 10m --reason 'scraping'
  loudou ban per-user mallory                     until somebody lifts it
  loudou buckets --state banned                   who is banned";

pub(crate) const UNBAN: &str = "\
Examples:
  loudou unban per-user mallory --reason 'ticket 4711'";

pub(crate) const OVERRIDE: &str = "\
Examples:
  loudou override per-user alice scale=10 --for 30m --reason 'launch day'
  loudou override per-user 'team-*' unlimited
  loudou override per-user alice capacity=100 rate=5/s --limit burst --dry-run
  loudou override per-user alice --limits limits.yaml
  loudou override per-user alice --remove";

pub(crate) const EVENTS: &str = "\
Examples:
  loudou events
  loudou events --follow
  loudou events --after 120 --output jsonl";

pub(crate) const EXPORT: &str = "\
Examples:
  loudou export > rules.json
  loudou export --live > live.json                what a restart of Envoy would lose";

pub(crate) const IMPORT: &str = "\
Examples:
  loudou export --live > live.json                before Envoy restarts
  loudou import live.json --dry-run               after it: what would be applied again
  loudou import live.json
  loudou --url http://10.0.0.7:9911 export --live | loudou import -    from one Envoy to another";

pub(crate) const SCHEMA: &str = "\
Examples:
  loudou schema > loudou.schema.json
  # yaml-language-server: $schema=./loudou.schema.json      first line of a rules.yaml, for an editor";

pub(crate) const COMPLETIONS: &str = "\
Examples:
  loudou completions bash > ~/.local/share/bash-completion/completions/loudou
  loudou completions zsh > ~/.zfunc/_loudou
  loudou completions fish > ~/.config/fish/completions/loudou.fish";
