//! Values of the option `--format`, which selects the format of traces and logs.

use clap::ValueEnum;
use loudou_replay::format::LogFormat;

/// Format of a trace or log.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum FormArg {
    /// JSON Lines with `at_ns`
    Trace,
    /// Envoy's default access log, or Istio's
    Envoy,
    /// Envoy's access log as JSON, also Istio's and Envoy Gateway's
    EnvoyJson,
    /// NGINX's `combined` or `main`, Apache's `common` or `combined`
    #[value(aliases = ["nginx", "apache", "common"])]
    Combined,
    /// Apache's `vhost_combined`, or `combined` after a host
    VhostCombined,
    /// The default of ingress-nginx
    IngressNginx,
    /// Caddy's JSON
    Caddy,
    /// AWS's application load balancer
    Alb,
}

impl From<FormArg> for LogFormat {
    fn from(form: FormArg) -> Self {
        match form {
            FormArg::Trace => Self::Trace,
            FormArg::Envoy => Self::Envoy,
            FormArg::EnvoyJson => Self::EnvoyJson,
            FormArg::Combined => Self::Combined,
            FormArg::VhostCombined => Self::VhostCombined,
            FormArg::IngressNginx => Self::IngressNginx,
            FormArg::Caddy => Self::Caddy,
            FormArg::Alb => Self::Alb,
        }
    }
}
