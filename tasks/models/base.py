"""What all tables share: one MetaData with one way of naming."""

from __future__ import annotations

from sqlalchemy import DateTime, MetaData

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "pk": "pk_%(table_name)s",
    }
)

moment = DateTime(timezone=True)
